// Nodes of protobuf as ops of the graph, and what messages call them.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

#include "autopar/ir.hpp"

namespace autopar {

// "op 'fc1' (MatMul)"
std::string label(const std::string& name, const onnx::NodeProto& node);
// The domain with "ai.onnx" written as "".
std::string domain_of(const onnx::NodeProto& node);
// The node's own name, or "<Type>_<first output>".
std::string name_of_node(const onnx::NodeProto& node);

// Type, domain and attributes; no inputs and outputs. The message does not name the op.
Result<Op> op_of_node(const onnx::NodeProto& node);
// The tensor that a node of type Constant holds.
Result<Tensor> constant_of_node(onnx::NodeProto& node);

}  // namespace autopar
