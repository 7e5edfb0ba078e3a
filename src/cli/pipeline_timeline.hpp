// The timeline of a pipeline as a Chrome Trace Event file.
#pragma once

#include <string>

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar::cli {

// A process for each stage, with a row for the actions of its schedule, one for compute, one for
// the collectives over each tier, and one for the messages to each other stage. Times are those
// that the plan is expected to take, in microseconds. All actions are shown, and the ops within
// those of the first two and the last micro-batch and of the update. The ops of a backward pass in
// two parts are drawn to fill each part.
std::string pipeline_timeline_json(const PipelinePlan& plan, const std::string& updates);

}  // namespace autopar::cli
