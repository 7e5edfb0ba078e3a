// Programs as ONNX models in memory, for what runs without a file of its own, and whether two files
// hold one program.
//
//   Result<std::string> bytes = plan_bytes(plan, metadata, "plan.onnx");
//   Result<std::string> difference = difference_of_programs("DIR/rank00003/plan.onnx",
//   "DIR/plan.onnx");
#pragma once

#include <optional>
#include <string>

#include "autopar/export.hpp"

namespace autopar {

// What write_plan would write, with all lists of ranks in their collectives; external data lies
// where the plan says. What runs of a PlanFile that was written by hand, with external data from
// the file's folder. Errors start with `where`.
Result<std::string> plan_bytes(const Plan& plan, const PlanMetadata& metadata,
                               const std::string& where);
// What write_graph_onnx would write.
Result<std::string> graph_bytes(const Graph& graph, const std::string& where);

// What a file holds, with lists of ranks in their collectives, for runtimes that do not know
// `group_ref`; nothing where the file has them so itself.
Result<std::optional<std::string>> bytes_with_groups(const std::string& path);

// How the program of one plan's file differs from that of another, op by op; empty: not at all.
// That external data lie in another folder is no difference.
Result<std::string> difference_of_programs(const std::string& path, const std::string& expected);

}  // namespace autopar
