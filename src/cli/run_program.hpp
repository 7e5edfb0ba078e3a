// From the files that `run` is given to what it executes and compares.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "autopar/exec.hpp"
#include "autopar/export.hpp"
#include "autopar/import.hpp"

namespace autopar::cli {

// The program as it runs, whose weights leave `file`. One that was written by hand runs as it was
// completed, from memory. Of a plan with rank folders, what rank `own` runs (nothing: what any rank
// runs) is compared with `file`, which has been proven. Errors: a file of a rank that
// differs; what the program's weights or collectives make impossible.
Result<RunProgram> run_program(PlanFile& file, std::optional<std::int64_t> own);

// The model that a plan is compared with.
struct UnshardedModel {
  std::string path;
  std::shared_ptr<const std::string> bytes;  // of the ONNX model that a graph.json stands for
  std::optional<Graph> graph;                // nothing: it cannot be imported
};
// Inputs of the programs, with the whole batch of those that a step cuts.
std::vector<BoundaryValue> whole_inputs(const std::vector<PlanFile>& files,
                                        const std::optional<Step>& step);
// Looked for as model_of_plan does, read once; on the batch of these inputs. Errors: it is not the
// model that the plan was made of; a graph.json that cannot be imported.
Result<UnshardedModel> unsharded_model(const std::string& given, const PlanFile& plan,
                                       const std::vector<BoundaryValue>& inputs,
                                       const ImportOptions& import);

// Given inputs and outputs of an .npz file; an array without a prefix is an input. A rank that does
// not compare reads only what it is fed, when it is.
Status add_data(const std::string& path, bool compares, RunRequest& request);

}  // namespace autopar::cli
