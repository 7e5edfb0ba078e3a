// What waits between the stages of a pipeline that has no backward passes. (Where there are such, a
// chunk keeps what it is handed, and that is in its own memory.)
#pragma once

#include <vector>

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// Per stage the most bytes of a device at one time of what is made and not yet read, by the
// simulated schedule (PipelinePlan::times): what goes to another stage until it has left, and what
// comes, or stays, from its arrival until the last chunk of the stage that reads it begins.
std::vector<Bytes> bytes_waiting(const PipelinePlan& plan);

}  // namespace autopar
