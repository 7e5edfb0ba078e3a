// How large a model is once its functions are inlined, before any is: a few functions that call
// each other twice can stand for more nodes than fit in any memory.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <map>
#include <string>

#include "autopar/support.hpp"

namespace autopar {

// Model-local functions by identifier.
using Functions = std::map<std::string, const onnx::FunctionProto*>;
Functions functions_of(const onnx::ModelProto& model);
// The function that a node calls; null where it is an op. A function of the default domain does not
// replace an op of ONNX.
const onnx::FunctionProto* called_function(const Functions& functions, const onnx::NodeProto& node);

// An error where functions call themselves, are nested too deep, or multiply to too many nodes.
// Linear in the size of the file.
Status check_expansion(const onnx::ModelProto& model, const Functions& functions);

}  // namespace autopar
