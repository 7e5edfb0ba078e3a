// Graph <-> onnx::ModelProto, as they are: no normalisation, no checks of ONNX's semantics.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>

#include "autopar/ir.hpp"

namespace autopar {

inline constexpr std::int64_t kIrVersion = 10;

// Every value that is neither an initializer nor at the boundary gets a value_info. Error where the
// inline data exceed what a protobuf file can hold.
Result<onnx::ModelProto> model_proto_of(const Graph& graph);

// Takes the data out of `model`. Initializers become constants (external ones: parameters). Errors
// start with `where`.
Result<Graph> graph_of(onnx::ModelProto& model, const std::string& where);

// Runs ONNX's checker and its strict shape inference, which compares what it infers with every
// value_info. `model` is the same afterwards. Errors start with `where`.
Status check_onnx(onnx::ModelProto& model, const std::string& where);

// Schemas of ai.autopar, once per process.
void register_collective_schemas();

// A protobuf file may have at most 2 GB. Writes to a temporary name first.
Status write_model_proto(const onnx::ModelProto& model, const std::string& path);
Result<onnx::ModelProto> read_model_proto(const std::string& path);

}  // namespace autopar
