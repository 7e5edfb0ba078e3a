// What search and apply leave behind of a pipeline.
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar::cli {

// The programs of all chunks, step.json and schedule.csv, strategy.json, report.json; the table.
Status write_pipeline(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options,
                      const CommonOptions& common);

}  // namespace autopar::cli
