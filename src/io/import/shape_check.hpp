// Whether the tensors that an op reads fit together, where ONNX's inference does not say it.
#pragma once

#include <vector>

#include "io/import/infer.hpp"

namespace autopar {

// Static dimensions alone. Errors: which dimension of which input, what is expected and why; not
// where.
Status check_shapes(const onnx::OpSchema& schema, const onnx::NodeProto& node,
                    const std::vector<NodeInput>& inputs,
                    const std::vector<onnx::TypeProto>& outputs);

}  // namespace autopar
