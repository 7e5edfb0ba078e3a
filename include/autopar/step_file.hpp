// Step folders: step.json and the schedule beside it.
//
//   if (is_step_folder("gpt2.autopar")) Result<Step> step = read_step("gpt2.autopar");
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/export.hpp"
#include "autopar/step.hpp"
#include "autopar/unfinished.hpp"

namespace autopar {

// FORMATS' step.json: keys in a fixed order, a program per line. Precondition: verified.
std::string step_json_text(const Step& step);

// Writes step.json and the schedule into `folder`; they appear with the other files.
Status write_step(const Step& step, const std::string& folder, UnfinishedFiles& files);

// Whether `path` is a folder that holds step.json.
bool is_step_folder(const std::string& path);

// Inputs and outputs in the order of their names. Errors name file and field, or line and cell; as
// verify().
Result<Step> read_step(const std::string& folder);

// The programs of a step that was read, in its order, each proven by itself. As read_programs(),
// but that step.json says the ranks; a program may come without any metadata: its values then lie
// whole. Errors: a file that is missing; ranks that differ; Send and Recv.
Result<std::vector<PlanFile>> read_step_programs(
    const std::string& folder, const Step& step,
    const std::map<std::string, std::int64_t>& dims = {});

}  // namespace autopar
