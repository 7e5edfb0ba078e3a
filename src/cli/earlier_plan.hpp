// What lies where a plan, or a cluster, is to be written.
#pragma once

#include <string>
#include <vector>

#include "autopar/support.hpp"
#include "planning/plan_options.hpp"

namespace autopar::cli {

// The plan that lies where one is to be written, in words: "the plan of 'm.onnx' for 'c'"; empty:
// none. Errors: a file of the name of one of a plan's that is none of this program's and must not
// be replaced.
Result<std::string> earlier_plan(const PlanOptions& options);
// Errors: what is asked for can surely not be written where it is to be, as check_writable() says.
Status check_places(const PlanOptions& options);
// Errors: a file of the plan would take the place of the model, or what is written beside it that
// of pins, a strategy or a schedule.
Status check_reads_stay(const PlanOptions& options);

// Whether the file is a plan's strategy.
bool is_strategy_file(const std::string& path);

// The files of a plan in a folder, programs, documents and those of its ranks, stay as they are.
void keep_plan_in(const std::string& folder);

// What of an earlier plan is in the folder besides the model and the files that were written now:
// programs, folders of ranks, dialects, stages.
std::vector<std::string> left_of_earlier_plan(const std::string& folder,
                                              const std::vector<std::string>& written,
                                              const std::string& model);

// A folder with step.json is a step of several programs. Where the plan that was written is one
// program, that of an earlier plan goes.
Status remove_earlier_step(const std::string& folder);

// The same of one cluster file.
Result<std::string> earlier_cluster(const std::string& path);

}  // namespace autopar::cli
