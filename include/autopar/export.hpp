// Rewritten graphs out and in again: Plan -> plan.onnx -> Plan.
//
//   Result<std::vector<std::string>> warnings = write_plan(plan, metadata, "out/plan.onnx");
//   Result<PlanFile> file = read_plan("out/plan.onnx");
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autopar/partition.hpp"

namespace autopar {

// What plan.onnx says about where it comes from.
struct PlanMetadata {
  std::string version;  // of the autopar that wrote it: MAJOR.MINOR.PATCH
  std::string model_sha256;
  std::string strategy_sha256;
  std::vector<std::string> tier_names;  // of the cluster, innermost first; Axis::tier is an index
};

// Writes plan.onnx: IR version 10, the graph's opset, `ai.autopar` version 1, a static local shape
// for every value. ONNX's checker and strict shape inference run on what is written. External data
// is put beside the plan, from `model_folder`: as a clone or a copy, since ONNX's checker refuses
// links; above kLinkBytes as a hard link, with a warning. The file appears whole or not at all.
// Returns warnings. Errors: kInput naming the op or value that ONNX refuses, or the file that
// cannot be written.
inline constexpr Bytes kLinkBytes = Bytes{4} << 30;
Result<std::vector<std::string>> write_plan(const Plan& plan, const PlanMetadata& metadata,
                                            const std::string& path,
                                            const std::string& model_folder = ".");

// A plan as its file has it. Initializers are constants of the program; the tiers of the mesh are
// those that its axes name, numbered from the innermost axis.
struct PlanFile {
  Plan plan;
  PlanMetadata metadata;
  std::int64_t world_size = 1;
};
// Errors: not a plan, written by a later minor version of autopar, another version of the ops of
// ai.autopar, metadata that is missing or contradicts the program.
Result<PlanFile> read_plan(const std::string& path);

// The unsharded graph as an ONNX file. External data is not moved.
Status write_graph_onnx(const Graph& graph, const std::string& path);

}  // namespace autopar
