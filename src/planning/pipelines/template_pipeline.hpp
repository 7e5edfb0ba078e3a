// A pipeline of a template, as its units take it: where it is cut, what its chunks take and hold.
//
//   AUTOPAR_TRY(pipeline, pipeline_of(form, step, units, prices, cluster, stage));
//   pipeline.seconds, pipeline.peak    // of a step, and of the fullest stage
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"
#include "planning/pipelines/template_units.hpp"

namespace autopar {

// Units of every chunk, by their ends, the first of which is 0: the longest chunk is as short as it
// can be. Dynamic programming, O(chunks x units^2).
std::vector<std::size_t> balanced_ends(std::size_t chunks, const std::vector<Seconds>& of_units);

// What a chunk takes whose units take these, in their order. Collectives of a unit's gradients and
// new weights go on beside the passes of the others.
ChunkCost cost_of_units(const std::vector<const UnitPrice*>& units);

struct TemplatePipeline {
  std::vector<std::size_t> ends;  // of chunks, in units
  Seconds seconds = 0;
  Bytes peak = 0;
};
// `kind_of`: per unit; `prices`: per kind. The step is on `cluster`. Errors: of the schedule.
Result<TemplatePipeline> pipeline_of(const PipelineForm& form, const Graph& step,
                                     const std::vector<std::size_t>& kind_of,
                                     const std::vector<UnitPrice>& prices, const Cluster& cluster,
                                     const Cluster& stage);

}  // namespace autopar
