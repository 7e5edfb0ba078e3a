// Types and shapes of one node's outputs, by ONNX's own inference functions.
#pragma once

#include <onnx/defs/schema.h>

#include <functional>
#include <optional>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// Operands whose values decide shapes have a few elements; larger data is not handed out.
inline constexpr std::int64_t kMaxOperandElements = 4096;

// One input of a node; an absent optional one has no type.
struct NodeInput {
  const onnx::TypeProto* type = nullptr;
  const Tensor* data = nullptr;  // where known
};

// One TypeProto per output of the node; shapes that inference does not find have no (or symbolic)
// dimensions. Checks the number of inputs and outputs, the attributes and the element types against
// the schema. The message says what is wrong but not where.
Result<std::vector<onnx::TypeProto>> infer_types(const onnx::OpSchema& schema,
                                                 const onnx::NodeProto& node,
                                                 const std::vector<NodeInput>& inputs);

// Nothing where a dimension is not a number.
std::optional<Shape> static_shape(const onnx::TypeProto& type);

}  // namespace autopar
