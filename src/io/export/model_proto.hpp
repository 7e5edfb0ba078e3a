// Graph <-> an ONNX model, as they are: no normalisation, no checks of ONNX's semantics.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>

#include "autopar/partition.hpp"
#include "autopar/unfinished.hpp"

namespace autopar {

inline constexpr std::int64_t kIrVersion = 10;
// Of a node: the phase of its op, where that is not the forward pass.
inline constexpr const char* kPhaseKey = "autopar.phase";
// Of a node: where sums across devices are added up, where that is not free.
inline constexpr const char* kSumsKey = "autopar.sums";

// What a node says of its op under these keys.
struct ToldPhase {
  std::optional<Phase> phase;
  std::optional<SumsAt> sums;
};

// Error where a value is none of those that are written; it starts with the node's name.
Result<ToldPhase> told_phase(const onnx::NodeProto& node);

// An ONNX model whose collectives do not list their ranks: a plan for 16,384 ranks has thousands of
// collectives that list them all, but only a few different lists. Files have the lists in place.
struct LeanModel {
  onnx::ModelProto proto;       // of a collective the attribute `groups` is there, but empty
  std::vector<IntList> groups;  // by node
};

// Every value that is neither an initializer nor at the boundary gets a value_info. Error where the
// inline data exceed what a protobuf file can hold.
Result<LeanModel> lean_model_of(const Graph& graph);

// A value with data as an initializer.
onnx::TensorProto initializer_of(const Value& value);

// Takes the data out of `model`. Initializers become constants (external ones: parameters). Errors
// start with `where`.
Result<Graph> graph_of(LeanModel& model, const std::string& where);

// Whether a node's attribute is one that a LeanModel sets aside.
bool lists_groups(const onnx::NodeProto& node, const onnx::AttributeProto& attribute);

// Has each list of ranks stand in the file once, by metadata_props["autopar.groups"], where its
// collectives name it by its place there (`group_ref`): of thousands of ranks lists are most of the
// file. read_model puts them back.
void refer_to_groups(LeanModel& model);

// The text of metadata_props["autopar.io"]; of one program of a step, or of one that stands alone.
std::string json_io(const Plan& plan, bool of_step = false);

// Runs ONNX's checker and its strict shape inference, which compares what it infers with every
// value_info. `model` is the same afterwards. Errors start with `where`.
Status check_onnx(onnx::ModelProto& model, const std::string& where);

// Schemas of ai.autopar, once per process.
void register_collective_schemas();

// Node by node, so that what is in memory is a LeanModel and one node. A protobuf file may have at
// most 2 GB. The same bytes as protobuf would write for the whole model. Takes the graph out of
// `model`.
Status write_model(LeanModel& model, const std::string& path, UnfinishedFiles& files);
Status write_model(LeanModel& model, const std::string& path);
Result<LeanModel> read_model(const std::string& path);

}  // namespace autopar
