#include "planning/pipelines/moved_cuts.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

namespace {

// Sums of seconds until each op.
class CostsOfCuts {
 public:
  CostsOfCuts(const OpSeconds& seconds, const ChunkSeconds& beside, double devices)
      : forward_(sums(seconds.forward)),
        backward_(sums(seconds.backward)),
        inputs_(sums(seconds.inputs)),
        update_(sums(seconds.update)),
        beside_(beside),
        devices_(devices) {}

  std::vector<ChunkCost> of(const std::vector<OpId>& cuts) const {
    std::vector<ChunkCost> costs(cuts.size() + 1);
    for (std::size_t c = 0; c < costs.size(); ++c) {
      const std::size_t from = c == 0 ? 0 : cuts[c - 1].index();
      const std::size_t to = c < cuts.size() ? cuts[c].index() : forward_.size() - 1;
      const Seconds more = beside_ ? beside_(c, OpId(static_cast<std::int64_t>(from)),
                                             c < cuts.size() ? cuts[c] : OpId())
                                   : 0;
      PassSeconds& steady = costs[c].steady;
      steady.forward = (forward_[to] - forward_[from]) / devices_;
      steady.backward = (backward_[to] - backward_[from] + more) / devices_;
      steady.input_gradients = (inputs_[to] - inputs_[from] + more) / devices_;
      steady.weight_gradients = std::max(0.0, steady.backward - steady.input_gradients);
      if (update_.size() > to) costs[c].update = (update_[to] - update_[from]) / devices_;
    }
    return costs;
  }

 private:
  static std::vector<Seconds> sums(const std::vector<Seconds>& of_ops) {
    std::vector<Seconds> until(of_ops.size() + 1, 0);
    std::partial_sum(of_ops.begin(), of_ops.end(), until.begin() + 1);
    return until;
  }

  const std::vector<Seconds> forward_, backward_, inputs_, update_;
  const ChunkSeconds& beside_;
  const double devices_;
};

// Between stages: what a stage hands to itself is there.
void add_sending(const PipelineSchedule& schedule, const std::vector<OpId>& cuts,
                 const std::vector<Seconds>& sending, double devices,
                 std::vector<ChunkCost>& costs) {
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    if (schedule.stage_of_chunk[c] == schedule.stage_of_chunk[c + 1]) continue;
    costs[c].send_forward = costs[c + 1].send_backward = sending[cuts[c].index()] / devices;
  }
}

}  // namespace

std::vector<ChunkCost> costs_by_ops(const OpSeconds& seconds, const ChunkSeconds& beside,
                                    const std::vector<OpId>& cuts, double devices) {
  return CostsOfCuts(seconds, beside, devices).of(cuts);
}

Result<std::vector<OpId>> moved_cuts(const PipelineSchedule& schedule,
                                     const std::vector<OpId>& places,
                                     std::vector<std::vector<OpId>> starts,
                                     const OpSeconds& seconds, const ChunkSeconds& beside,
                                     const std::vector<Seconds>& sending, double devices) {
  const CostsOfCuts costs(seconds, beside, devices);
  AUTOPAR_TRY(simulator, ScheduleSimulator::of(schedule));
  const auto time = [&](const std::vector<OpId>& of) -> Result<Seconds> {
    std::vector<ChunkCost> chunks = costs.of(of);
    if (!sending.empty()) add_sending(schedule, of, sending, devices, chunks);
    AUTOPAR_TRY(times, simulator.simulate(chunks));
    return times.makespan;
  };
  std::vector<OpId> cuts;
  Seconds shortest = std::numeric_limits<Seconds>::infinity();
  for (std::vector<OpId>& start : starts) {
    AUTOPAR_TRY(found, time(start));
    if (found >= shortest) continue;
    shortest = found;
    cuts = std::move(start);
  }
  bool is_moved = true;
  for (int round = 0; round < tuning::cuts::kRounds && is_moved; ++round) {
    is_moved = false;
    for (std::size_t c = 0; c < cuts.size(); ++c) {
      const auto at = std::lower_bound(places.begin(), places.end(), cuts[c]) - places.begin();
      for (int by = -tuning::cuts::kFarthest; by <= tuning::cuts::kFarthest; ++by) {
        const auto to = at + by;
        if (by == 0 || to < 0 || to >= static_cast<std::ptrdiff_t>(places.size())) continue;
        std::vector<OpId> next = cuts;
        next[c] = places[static_cast<std::size_t>(to)];
        const bool is_behind = c == 0 || next[c - 1] < next[c];
        const bool is_before = c + 1 == next.size() || next[c] < next[c + 1];
        if (!is_behind || !is_before) continue;
        AUTOPAR_TRY(found, time(next));
        if (found >= shortest * (1 - tuning::cuts::kGain)) continue;
        shortest = found;
        cuts = std::move(next);
        is_moved = true;
      }
    }
  }
  return cuts;
}

}  // namespace autopar
