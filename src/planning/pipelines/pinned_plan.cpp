#include "planning/pipelines/pinned_plan.hpp"

#include <algorithm>
#include <set>

#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/room.hpp"
#include "search/bound_beside.hpp"

namespace autopar {

bool may_be_put_into_plans(const std::optional<StrategyFile>& pins) {
  return pins && pins->mesh.empty() && !(pins->pins.ops.empty() && pins->pins.values.empty());
}

std::optional<StrategyFile> without_pins(const StrategyFile& pins) {
  StrategyFile bare = pins;
  bare.pins = {};
  const bool is_empty = bare.stage_of_ops.empty() && bare.recompute.empty() &&
                        bare.repeated.empty() && bare.checkpoints.empty();
  return is_empty ? std::nullopt : std::optional(std::move(bare));
}

Result<PipelinePlan> with_pins(const PipelinePlan& plan, const StagedStep& step,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const ChunkSearch search{*step.inputs, step.given, step.options, pins,
                           common,       begin,      clock,        nullptr};
  const ChunkPlans plans(search, plan.stage);
  PipelinePlan pinned = plan;
  pinned.schedule.lines = pinned.passes;
  std::set<int> changed;
  for (std::size_t c = 0; c < pinned.chunks.size(); ++c) {
    ChunkPlan& chunk = pinned.chunks[c];
    chunk.in_stage = nullptr;
    AUTOPAR_TRY(own, plans.with_pins(chunk));
    if (!own) continue;
    chunk = std::move(*own);
    changed.insert(static_cast<int>(c));
  }
  // What was like one of these is a plan of its own, and others are like that.
  for (std::size_t c = 0; c < pinned.chunks.size(); ++c) {
    ChunkPlan& chunk = pinned.chunks[c];
    if (changed.count(chunk.alike) == 0) continue;
    const int before = chunk.alike;
    for (std::size_t d = c; d < pinned.chunks.size(); ++d) {
      if (pinned.chunks[d].alike == before) pinned.chunks[d].alike = static_cast<int>(c);
    }
    chunk.alike = -1;
  }
  AUTOPAR_TRY(room, room_of(pinned.stage, common));
  AUTOPAR_RETURN_IF_ERROR(price_pipeline(step.inputs->cluster, step.options.updates, room, pinned));
  if (pinned.peak_bytes > room) return infeasible_error("with the pins it does not fit");
  pinned.lower_bound = bound_beside(pinned.lower_bound, pinned.times.makespan);
  return pinned;
}

}  // namespace autopar
