// What is said of a pipeline that was planned.
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar::cli {

// "1f1b"; of a table that was read, the file's own name.
std::string schedule_name(const PipelinePlan& plan);

// The table on the terminal: each chunk, the step, and what became of each form.
std::string pipeline_table(const PipelinePlan& plan, const Inputs& whole,
                           const PlanOptions& options);

// The same of its report.json, which `path` names in errors (kInput).
Result<std::string> pipeline_table_of_report(const std::string& text, const std::string& path);
bool is_pipeline_report(const std::string& text);

// report.json, with what was warned of.
std::string pipeline_report(const PipelinePlan& plan, const Inputs& whole,
                            const PlanOptions& options, const std::vector<std::string>& warnings);

// What each chunk costs, term by term, and the step: a table, or JSON.
std::string pipeline_price(const PipelinePlan& plan, const Inputs& whole,
                           const PlanOptions& options, bool json);

}  // namespace autopar::cli
