// Step folders as `run` takes them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autopar/exec.hpp"
#include "autopar/step_file.hpp"

namespace autopar::cli {

// The folder of a step, given as such or by its step.json; empty: it is none.
std::string step_folder_of(const std::string& path);

// The unsharded whole-batch step beside step.json, of whose programs `program` is one; empty: it is
// not there, or the model is not trained, so that such a file is of another plan.
std::string whole_step_in(const std::string& folder, const PlanFile& program);

// The unsharded passes beside step.json, `train.<phase>.onnx`, as a step of one rank.
struct StepPasses {
  std::shared_ptr<const RunRequest> request;
  std::vector<PlanFile> files;
};
Result<StepPasses> passes_of(const std::string& folder, const Step& step,
                             const std::map<std::string, std::int64_t>& dims);

// Graphs of a step's programs, as exec looks at them.
std::vector<GraphOfStep> graphs_of(const std::vector<PlanFile>& files, const Step& step);

}  // namespace autopar::cli
