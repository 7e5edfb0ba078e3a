// Between the tensors of protobuf and those of the graph.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>
#include <variant>

#include "autopar/ir.hpp"

namespace autopar {

// Nothing for the types that a Graph does not know (strings, complex, 8-bit floats, 4-bit
// integers).
std::optional<DType> dtype_of_onnx(std::int32_t elem_type);
std::int32_t onnx_dtype_of(DType dtype);
// "FLOAT8E4M3FN", or the number where ONNX does not know it either.
std::string onnx_dtype_name(std::int32_t elem_type);

struct TensorData {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::variant<std::monostate, Tensor, ExternalData> data;
};
// Takes raw data out of `proto` (no copy); other forms are converted. Checks the shape, the amount
// of data and the external location. `where` starts the messages: "initializer 'w'".
Result<TensorData> take_tensor(onnx::TensorProto& proto, const std::string& where);
onnx::TensorProto to_proto(const Tensor& tensor);

// Reads external data below `folder`; nothing where the file is missing or too short.
std::optional<Tensor> read_external(const TensorData& tensor, const std::string& folder);

}  // namespace autopar
