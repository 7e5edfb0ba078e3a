#include <optional>

#include "pipeline/action_table.hpp"

namespace autopar {

namespace {

void count(const StepAction& action, PassCounts& counts) {
  switch (action.phase) {
    case StepPhase::kForward:
      counts.forward += 1;
      return;
    case StepPhase::kBackward:
      counts.input_gradients += 1;
      counts.weight_gradients += 1;
      return;
    case StepPhase::kInputGradients:
      counts.input_gradients += 1;
      return;
    case StepPhase::kWeightGradients:
      counts.weight_gradients += 1;
      return;
    case StepPhase::kForwardBackward:
    case StepPhase::kReduce:
    case StepPhase::kUpdate:
      return;
  }
}

}  // namespace

Result<std::vector<PassCounts>> longest_path(const PipelineSchedule& schedule,
                                             const std::vector<ChunkCost>& costs) {
  AUTOPAR_TRY(simulator, ScheduleSimulator::of(schedule));
  return simulator.longest_path(costs);
}

Result<std::vector<PassCounts>> ScheduleSimulator::longest_path(
    const std::vector<ChunkCost>& costs) const {
  AUTOPAR_TRY(times, simulate(costs));
  const PipelineSchedule& schedule = ordered_->schedule;
  const ActionTable& table = ordered_->table;
  const auto end_of = [&](ActionPlace place) {
    return times
        .actions[static_cast<std::size_t>(place.line)][static_cast<std::size_t>(place.index)]
        .end;
  };
  std::optional<ActionPlace> at;
  for (std::size_t line = 0; line < schedule.lines.size(); ++line) {
    if (schedule.lines[line].empty()) continue;
    const ActionPlace last{static_cast<std::int32_t>(line),
                           static_cast<std::int32_t>(schedule.lines[line].size()) - 1};
    if (!at || end_of(last) > end_of(*at)) at = last;
  }
  std::vector<PassCounts> counts(costs.size());
  while (at) {
    const StepAction& action = action_at(schedule, *at);
    count(action, counts[static_cast<std::size_t>(action.chunk)]);
    std::optional<ActionPlace> before;
    if (at->index > 0) before = ActionPlace{at->line, at->index - 1};
    for (const std::size_t value : table.needs(action)) {
      const ActionPlace maker = table.makers[value];
      if (!before || end_of(maker) > end_of(*before)) before = maker;
    }
    at = before;
  }
  return counts;
}

}  // namespace autopar
