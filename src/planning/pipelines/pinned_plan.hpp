// Pins of ops and tensors, put into a pipeline that was planned without them.
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// Whether the file pins ops or tensors, by axes of no mesh of its own.
bool may_be_put_into_plans(const std::optional<StrategyFile>& pins);
// What else it says; nothing: nothing.
std::optional<StrategyFile> without_pins(const StrategyFile& pins);

// `plan`, one of `steps` in its form and with its cuts and meshes: in chunks that have pins the ops
// that these are of, and those near them, are planned again, and all others stay. Its bound is that
// of the plan without them, which holds with them too. Errors: a chunk cannot keep its pins so
// (kInput), or does not fit (kInfeasible).
Result<PipelinePlan> with_pins(const PipelinePlan& plan, const StagedStep& step,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock);

}  // namespace autopar
