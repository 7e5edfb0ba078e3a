// What `search --stages` plans: by searches, by templates, and with pins.
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// Templates where these are asked for, else all plans (plan_staged()). With --searcher auto, and
// without pins or cuts, the best template too where a small step's plan is far above its bound.
// With pins of ops or tensors the plan without them is made first, and they are put into it
// (with_pins()); where that takes longer than without, or the step is small, it is also searched
// with them. What is faster is taken. Errors: of these.
Result<StagedPlan> plan_stages(const std::vector<StagedStep>& steps,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock);

}  // namespace autopar
