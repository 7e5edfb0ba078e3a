// ONNX Runtime's element types and tensors as the project's.
#pragma once

#include <optional>

#include "exec/runtime.hpp"

namespace autopar {

std::optional<DType> dtype_of(ONNXTensorElementDataType type);
ONNXTensorElementDataType element_type_of(DType dtype);

// A tensor over memory that outlives it. ONNX Runtime writes to what it is fed only where
// run_session() says so.
Ort::Value view_of(DType dtype, const Shape& shape, const void* data);
// A copy of a tensor of a supported type.
Tensor copy_of(const Ort::Value& value);

// Name, type and shape of an input or output as the file declares it; -1: not fixed.
struct Declared {
  std::string name;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  Shape shape;
};
std::vector<Declared> inputs_of(const Ort::Session& session);
std::vector<Declared> outputs_of(const Ort::Session& session);

}  // namespace autopar
