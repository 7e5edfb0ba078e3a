// search --searcher uniform --stages: templates of a whole pipeline, as Megatron-LM, DeepSpeed and
// torchtitan can be told: degrees of data, tensor and pipeline parallelism, chunks, schedule, ZeRO
// and recomputation, alike in all stages.
//
// A template is priced by its units: the step is cut at all places that are alike (between layers);
// the first unit, one between, and the last are planned with the template's pins on the devices of
// a stage. What a chunk takes is the sum of its units, what it holds the sum of what they store and
// keep, and the most that one of them has beside that. The schedule is simulated with these. The
// best template that fits is then planned chunk by chunk, and that is what is written.
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// The best template of these forms, {1} for one stage. In `tried` of a pipeline: what fits, by its
// units, the fastest ten; then the others. Left out, and told there:
// forms whose compute alone, evenly split, takes longer than the best template so far; templates
// whose weights and states alone do not fit; sequences that are not split beside tensor
// parallelism, and ZeRO 0, since they send as much as their counterparts and hold more; ZeRO 3
// where ZeRO 1 fits, and what repeats more than another one that fits, since they take longer.
// Errors (kInfeasible): no template fits, with the smallest; the step has no places that are alike.
Result<StagedPlan> plan_uniform_stages(const std::vector<StagedStep>& steps,
                                       const CommonOptions& common,
                                       std::chrono::steady_clock::time_point begin,
                                       PhaseClock& clock);

}  // namespace autopar
