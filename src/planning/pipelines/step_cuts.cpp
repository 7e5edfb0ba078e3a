// Where a form's chunks are cut.
#include <algorithm>
#include <set>

#include "autopar/report.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/moved_cuts.hpp"
#include "planning/pipelines/pinned_stages.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/pipeline_step.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "stages/crossing.hpp"

namespace autopar {

using tuning::cuts::kFarthestPlanned;
using tuning::cuts::kMostPlanned;

Result<std::vector<OpId>> PipelineStep::balanced_by(const FormCandidate& candidate,
                                                    const OpSeconds& seconds,
                                                    const ChunkSeconds& memory) const {
  const std::size_t chunks = candidate.schedule.stage_of_chunk.size();
  return balanced_cuts(step_, static_cast<int>(chunks), bounds_.places_of(candidate.schedule).ops,
                       seconds, sent_per_s(candidate), search_.options.updates, memory);
}

double PipelineStep::sent_per_s(const FormCandidate& candidate) const {
  return tier_between(search_.whole.cluster, candidate.stage).bandwidth_bytes_per_s;
}

// Moved one by one from those that balance the chunks.
Result<std::vector<OpId>> PipelineStep::moved_by(const FormCandidate& candidate,
                                                 std::vector<OpId> cuts, const OpSeconds& seconds,
                                                 const ChunkSeconds& memory) const {
  std::vector<std::vector<OpId>> starts = bounds_.cuts_alike(candidate.schedule, cuts);
  starts.insert(starts.begin(), std::move(cuts));
  PipelineSchedule schedule = candidate.schedule;
  add_updates(schedule, false);
  // Where little is sent, what balances compute is the better start.
  const auto devices = static_cast<double>(candidate.stage.device_count());
  const std::vector<OpId>& places = bounds_.places_of(candidate.schedule).ops;
  AUTOPAR_TRY(balanced, moved_cuts(schedule, places, starts, seconds, memory, {}, devices));
  starts.insert(starts.begin(), std::move(balanced));
  std::vector<Seconds> sending;
  for (const Bytes bytes : bytes_crossing(step_, search_.options.updates)) {
    sending.push_back(static_cast<double>(bytes) / sent_per_s(candidate));
  }
  return moved_cuts(schedule, places, std::move(starts), seconds, memory, sending, devices);
}

// `memory`: what memory adds to chunks.
Result<std::vector<OpId>> PipelineStep::cut_by(const FormCandidate& candidate,
                                               const OpSeconds& seconds,
                                               const ChunkSeconds& memory) const {
  AUTOPAR_TRY(cuts, balanced_by(candidate, seconds, memory));
  return moved_by(candidate, std::move(cuts), seconds, memory);
}

// Where chunks hold alike much, by all that is stored and kept of their ops; where there is no
// backward pass, by what is stored and, at most, alive in a pass.
Result<std::vector<OpId>> PipelineStep::balanced_by_memory(const FormCandidate& candidate) const {
  const OpBytes bytes = bytes_of_ops(step_, search_.options.updates);
  const std::size_t ops = step_.ops.size();
  std::vector<double> stored(ops + 1), kept(ops + 1);
  for (std::size_t o = 0; o < ops; ++o) {
    stored[o + 1] = stored[o] + bytes.stored[o];
    kept[o + 1] = kept[o] + bytes.kept[o];
  }
  const InFlight flying = in_flight(candidate.schedule);
  const bool is_trained = !is_forward_only(candidate.schedule);
  const auto held = [&](std::size_t chunk, OpId from, OpId to) {
    const std::size_t begin = from.index(), end = to.valid() ? to.index() : ops;
    const double of_parameters = stored[end] - stored[begin];
    if (!is_trained) {
      const auto first = bytes.alive.begin();
      return of_parameters + *std::max_element(first + static_cast<std::ptrdiff_t>(begin),
                                               first + static_cast<std::ptrdiff_t>(end));
    }
    return of_parameters + static_cast<double>(flying.of_chunk[chunk]) * (kept[end] - kept[begin]);
  };
  const std::vector<Seconds> none(ops, 0);
  return balanced_by(candidate, {none, none, none, none}, held);
}

// Where the user says where chunks begin.
Result<std::optional<std::vector<OpId>>> PipelineStep::given_cuts(const PipelineForm& form,
                                                                  std::size_t chunks) const {
  const std::string& names = search_.options.cuts;
  if (!names.empty()) {
    AUTOPAR_TRY(cuts, named_cuts(names, search_.whole.model, step_, chunks));
    return std::optional(std::move(cuts));
  }
  if (!search_.pins || search_.pins->stage_of_ops.empty()) {
    return std::optional<std::vector<OpId>>();
  }
  AUTOPAR_TRY(cuts, pinned_cuts(form));
  return std::optional(std::move(cuts));
}

// As pins say, by names of ops of the model or of what import made of them.
Result<std::vector<OpId>> PipelineStep::pinned_cuts(const PipelineForm& form) const {
  const StrategyFile& pins = *search_.pins;
  if (form.chunks_per_stage > 1) {
    return usage_error(pins.path + ": pipeline_stage goes with one chunk per stage, and " +
                       to_text(form) + " is asked for");
  }
  AUTOPAR_TRY(stages, pinned_stages(pins, search_.whole.model, step_));
  auto cuts = cuts_of_stages(step_, stages, static_cast<int>(form.stages), search_.options.updates);
  if (!cuts) return input_error(pins.path + ": " + cuts.error().message);
  return cuts;
}

std::vector<OpId> PipelineStep::cuts_of_plan(const PipelinePlan& plan) const {
  std::vector<OpId> cuts;
  for (std::size_t o = 0; o < step_.ops.size() && cuts.size() < plan.cut_ops.size(); ++o) {
    if (step_.ops[o].name == plan.cut_ops[cuts.size()]) cuts.push_back(OpId(o));
  }
  return cuts;
}

// What does not fit, or cannot be cut so, is no better.
Result<bool> PipelineStep::takes_cuts(const FormCandidate& candidate, const std::vector<OpId>& cuts,
                                      Bytes room, PipelinePlan& best,
                                      const std::vector<std::string>& meshes) {
  if (!chunks_of(step_, cuts, search_.options.updates)) return false;
  auto plan = planned(candidate, cuts, best.times.makespan, UnitEnds::kAlike, meshes);
  if (plan) plan = read_better(std::move(*plan));
  if (!plan && plan.error().code != ErrorCode::kInfeasible) return plan.error();
  if (!plan || plan->peak_bytes > room || plan->times.makespan >= best.times.makespan) return false;
  best = std::move(*plan);
  return true;
}

Status PipelineStep::move_cuts(const FormCandidate& candidate, Bytes room, PipelinePlan& best) {
  std::vector<OpId> cuts = cuts_of_plan(best);
  if (candidate.is_pinned || cuts.size() != best.cut_ops.size()) return Ok{};
  const std::vector<OpId>& places = bounds_.places_of(candidate.schedule).ops;
  const auto count = static_cast<std::ptrdiff_t>(places.size());
  std::set<std::vector<OpId>> tried = {cuts};
  bool is_moved = true;
  const auto goes_on = [&] { return !search_.is_over() && tried.size() <= kMostPlanned; };
  while (is_moved && goes_on()) {
    is_moved = false;
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      for (int by = -kFarthestPlanned; by <= kFarthestPlanned && goes_on(); ++by) {
        const auto at = std::lower_bound(places.begin(), places.end(), cuts[c]) - places.begin();
        if (at + by < 0 || at + by >= count) continue;
        std::vector<OpId> next = cuts;
        next[c] = places[static_cast<std::size_t>(at + by)];
        const bool is_behind = c == 0 || next[c - 1] < next[c];
        const bool is_before = c + 1 == next.size() || next[c] < next[c + 1];
        if (!is_behind || !is_before || !tried.insert(next).second) continue;
        AUTOPAR_TRY(is_better, takes_cuts(candidate, next, room, best));
        if (!is_better) continue;
        cuts = std::move(next);
        is_moved = true;
      }
    }
  }
  logging::debug("{}: {} other cuts were planned: {}", to_text(best.form), tried.size() - 1,
                 format_seconds(best.times.makespan));
  return Ok{};
}

}  // namespace autopar
