// Steps of several programs: what they do, before they run.
#pragma once

#include <string>
#include <vector>

#include "autopar/exec.hpp"
#include "autopar/step_file.hpp"
#include "autopar/support.hpp"

namespace autopar::cli {

// Programs, schedule and what becomes of the model's inputs and outputs, then each program.
Result<std::string> show_step(const Step& step, const std::vector<PlanFile>& files, bool all_ops);
// {"format": "autopar-step-summary", ...}
Result<std::string> show_step_json(const Step& step, const std::vector<PlanFile>& files);

// The programs with their values, not to be run.
RunRequest request_of_values(const Step& step, const std::vector<PlanFile>& files);

// Whether the programs fit together: values have one maker, are read as they are made or can be
// moved there, and every action finds what it reads when its turn comes.
Status check_values(const Step& step, const std::vector<PlanFile>& files);

}  // namespace autopar::cli
