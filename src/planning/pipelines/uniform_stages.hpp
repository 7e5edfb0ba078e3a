// search --searcher uniform --stages: templates of a whole pipeline, as Megatron-LM, DeepSpeed and
// torchtitan can be told: degrees of data, tensor and pipeline parallelism, chunks, schedule, ZeRO
// and recomputation, alike in all stages.
//
// A template is priced by its units (template_units.hpp): the step is cut between layers, and each
// kind of unit is planned with the template's pins on the devices of a stage, with more or less in
// memory. What a chunk takes and holds is made of these (template_pipeline.hpp), and the schedule
// is simulated with it. The best template that fits is then planned chunk by chunk
// (template_plan.hpp), and that is what is written.
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// The best template of these forms, {1} for one stage; of one alone, where the searcher of the
// options is "uniform:" and its text. In `tried` of a pipeline: what fits, by its units, the
// fastest ten; then what was left out, and why: forms whose compute alone, evenly split, takes
// longer than the tenth; templates that, evenly split, hold more than fits; sequences that are not
// split beside tensor parallelism, and ZeRO 0, since they send as much as their counterparts and
// hold more; ZeRO 3 and what repeats more, where another one fits; what only sends more than one
// that takes too long. Errors (kInfeasible): no template fits, with the smallest; the step has no
// places that are alike.
Result<StagedPlan> plan_uniform_stages(const std::vector<StagedStep>& steps,
                                       const CommonOptions& common,
                                       std::chrono::steady_clock::time_point begin,
                                       PhaseClock& clock);

}  // namespace autopar
