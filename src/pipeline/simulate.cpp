#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>

#include "pipeline/action_table.hpp"

namespace autopar {

namespace {

struct NamedSeconds {
  const char* name;
  Seconds seconds;
};

Status verify_seconds(const std::string& where, std::initializer_list<NamedSeconds> all) {
  for (const NamedSeconds& one : all) {
    if (std::isfinite(one.seconds) && one.seconds >= 0) continue;
    return input_error(where + one.name + ": expected seconds of 0 or more, found " +
                       std::to_string(one.seconds));
  }
  return Ok{};
}

Status verify_seconds(const std::string& where, const PassSeconds& pass) {
  return verify_seconds(where, {{"F", pass.forward},
                                {"B", pass.backward},
                                {"I", pass.input_gradients},
                                {"W", pass.weight_gradients},
                                {"FB", pass.forward_backward}});
}

Status verify_costs(const PipelineSchedule& schedule, const std::vector<ChunkCost>& costs) {
  if (costs.size() != schedule.stage_of_chunk.size()) {
    return input_error("expected the costs of " + std::to_string(schedule.stage_of_chunk.size()) +
                       " chunks, found " + std::to_string(costs.size()));
  }
  for (std::size_t chunk = 0; chunk < costs.size(); ++chunk) {
    const ChunkCost& cost = costs[chunk];
    const std::string where = "costs of chunk " + std::to_string(chunk) + ": ";
    AUTOPAR_RETURN_IF_ERROR(verify_seconds(where, cost.steady));
    AUTOPAR_RETURN_IF_ERROR(verify_seconds(where + "first ", cost.first.value_or(cost.steady)));
    AUTOPAR_RETURN_IF_ERROR(verify_seconds(where + "last ", cost.last.value_or(cost.steady)));
    AUTOPAR_RETURN_IF_ERROR(verify_seconds(where, {{"send_forward", cost.send_forward},
                                                   {"send_backward", cost.send_backward},
                                                   {"R", cost.reduce},
                                                   {"U", cost.update}}));
    std::vector<FurtherMessage> messages = cost.reduced.value_or(std::vector<FurtherMessage>());
    messages.insert(messages.end(), cost.further.begin(), cost.further.end());
    for (const FurtherMessage& message : messages) {
      AUTOPAR_RETURN_IF_ERROR(verify_seconds(where, {{"message", message.seconds}}));
      const bool is_chunk = message.to >= 0 && message.to < static_cast<std::int64_t>(costs.size());
      if (!is_chunk || message.to == static_cast<std::int64_t>(chunk)) {
        return input_error(where + "message: expected another chunk, found " +
                           std::to_string(message.to));
      }
    }
  }
  return Ok{};
}

Seconds seconds_of(const PassSeconds& pass, StepPhase phase) {
  switch (phase) {
    case StepPhase::kForward:
      return pass.forward;
    case StepPhase::kBackward:
      return pass.backward;
    case StepPhase::kInputGradients:
      return pass.input_gradients;
    case StepPhase::kWeightGradients:
      return pass.weight_gradients;
    case StepPhase::kForwardBackward:
      return pass.forward_backward;
    case StepPhase::kReduce:
    case StepPhase::kUpdate:
      break;
  }
  AUTOPAR_CHECK(false, "a phase that is no pass");
}

// Goes through the actions once, each behind what it needs.
class Simulation {
 public:
  Simulation(const PipelineSchedule& schedule, const ActionTable& table,
             const std::vector<ChunkCost>& costs)
      : schedule_(schedule),
        table_(table),
        costs_(costs),
        arrivals_(table.makers.size()),
        sums_(costs.size()),
        sums_for_reduce_(costs.size()) {
    for (const StepLine& line : schedule.lines) times_.actions.emplace_back(line.size());
    times_.busy.resize(schedule.lines.size());
    ends_.resize(schedule.lines.size());
    for (std::size_t chunk = 0; chunk < costs.size(); ++chunk) {
      forward_.push_back(link_between(chunk, chunk + 1));
      backward_.push_back(link_between(chunk, chunk - 1));
    }
    free_.resize(links_.size());
  }

  // `awaited`: by chunk, until when its R waits for others' R, as far as that is known.
  ScheduleTimes run(const std::vector<ActionPlace>& order, std::vector<Seconds> awaited) {
    awaited_ = std::move(awaited);
    for (const ActionPlace place : order) run(place);
    finish();
    return std::move(times_);
  }
  // When what the R of each chunk reads of others' is there.
  const std::vector<Seconds>& sums_for_reduce() const { return sums_for_reduce_; }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // None at the ends of the model. A stage has one to itself, where layouts differ.
  std::size_t link_between(std::size_t from, std::size_t to) {
    if (to >= costs_.size()) return kNone;
    const std::pair stages(schedule_.stage_of_chunk[from], schedule_.stage_of_chunk[to]);
    return links_.emplace(stages, links_.size()).first->second;
  }

  void run(ActionPlace place) {
    const StepAction& action = action_at(schedule_, place);
    const auto line = static_cast<std::size_t>(place.line);
    const auto chunk = static_cast<std::size_t>(action.chunk);
    Seconds start = ends_[line];
    for (const std::size_t value : table_.needs(action)) start = std::max(start, arrivals_[value]);
    if (!from_further_.empty()) start = std::max(start, arrived_from_further(action));
    if (action.phase == StepPhase::kReduce) start = std::max(start, awaited_[chunk]);
    if (action.phase == StepPhase::kUpdate) start = std::max({start, reduced_, sums_[chunk]});
    const Seconds seconds = duration(action);
    const Seconds end = start + seconds;
    times_.actions[line][static_cast<std::size_t>(place.index)] = {start, end};
    times_.busy[line] += seconds;
    ends_[line] = end;
    if (action.phase == StepPhase::kReduce) reduce(chunk, end);
    if (makes_activation(action.phase)) {
      arrivals_[table_.activation(action.chunk, action.micro_batch)] =
          arrival(forward_[chunk], end, costs_[chunk].send_forward);
    }
    if (makes_gradient(action.phase)) {
      arrivals_[table_.gradient(action.chunk, action.micro_batch)] =
          arrival(backward_[chunk], end, costs_[chunk].send_backward);
    }
    for (const FurtherMessage& message : costs_[chunk].further) send(action, message, end);
  }

  void send(const StepAction& action, const FurtherMessage& message, Seconds end) {
    const bool forward = message.to > action.chunk;
    if (!(forward ? makes_activation(action.phase) : makes_gradient(action.phase))) return;
    const auto from = static_cast<std::size_t>(action.chunk);
    const std::size_t link = link_between(from, static_cast<std::size_t>(message.to));
    free_.resize(links_.size());
    Seconds& last = from_further_[{forward, message.to, action.micro_batch}];
    last = std::max(last, arrival(link, end, message.seconds));
  }

  // Of all that such chunks send for an action.
  Seconds arrived_from_further(const StepAction& action) const {
    Seconds last = 0;
    for (const bool forward : {false, true}) {
      if (!(forward ? makes_activation(action.phase) : makes_gradient(action.phase))) continue;
      const auto found = from_further_.find({forward, action.chunk, action.micro_batch});
      if (found != from_further_.end()) last = std::max(last, found->second);
    }
    return last;
  }

  void reduce(std::size_t chunk, Seconds end) {
    const auto& messages = costs_[chunk].reduced;
    if (!messages) reduced_ = std::max(reduced_, end);
    std::map<std::int64_t, Seconds> arrived;  // by stage
    for (const FurtherMessage& message : messages.value_or(std::vector<FurtherMessage>())) {
      const auto to = static_cast<std::size_t>(message.to);
      const auto [found, is_new] = arrived.try_emplace(schedule_.stage_of_chunk[to]);
      if (is_new) {
        const std::size_t link = message.seconds > 0 ? link_between(chunk, to) : kNone;
        free_.resize(links_.size());
        found->second = arrival(link, end, message.seconds);
      }
      sums_[to] = std::max(sums_[to], found->second);
      if (message.for_reduce) sums_for_reduce_[to] = std::max(sums_for_reduce_[to], found->second);
    }
  }

  Seconds duration(const StepAction& action) const {
    const ChunkCost& cost = costs_[static_cast<std::size_t>(action.chunk)];
    if (action.phase == StepPhase::kReduce) return cost.reduce;
    if (action.phase == StepPhase::kUpdate) return cost.update;
    if (action.micro_batch == 0 && cost.first) return seconds_of(*cost.first, action.phase);
    const bool is_last = action.micro_batch > 0 && action.micro_batch + 1 == table_.micro_batches;
    return seconds_of(is_last && cost.last ? *cost.last : cost.steady, action.phase);
  }

  Seconds arrival(std::size_t link, Seconds end, Seconds seconds) {
    if (link == kNone) return end;
    free_[link] = std::max(free_[link], end) + seconds;
    return free_[link];
  }

  void finish() {
    Seconds longest = 0;
    Seconds busy = 0;
    for (std::size_t line = 0; line < ends_.size(); ++line) {
      const auto& actions = times_.actions[line];
      times_.span.push_back(actions.empty() ? 0 : ends_[line] - actions.front().start);
      times_.makespan = std::max(times_.makespan, ends_[line]);
      longest = std::max(longest, times_.span.back());
      busy += times_.busy[line];
    }
    for (std::int64_t chunk = 0; chunk < table_.chunks; ++chunk) {
      std::vector<Seconds>& of_chunk = times_.arrivals.emplace_back();
      for (std::int64_t m = 0; m < table_.micro_batches; ++m) {
        of_chunk.push_back(arrivals_[table_.activation(chunk, m)]);
      }
    }
    for (const Seconds of_line : times_.busy) times_.idle.push_back(times_.makespan - of_line);
    const Seconds whole = longest * static_cast<double>(ends_.size());
    times_.bubble_rate = whole > 0 ? (whole - busy) / whole : 0;
  }

  const PipelineSchedule& schedule_;
  const ActionTable& table_;
  const std::vector<ChunkCost>& costs_;
  ScheduleTimes times_;
  std::vector<Seconds> arrivals_;         // by value: where it is read
  std::vector<Seconds> ends_;             // by line: of the last action so far
  Seconds reduced_ = 0;                   // the end of the last R so far that every U waits for
  std::vector<Seconds> sums_;             // by chunk: when what its U reads of others' R is there
  std::vector<Seconds> sums_for_reduce_;  // what its R reads
  std::vector<Seconds> awaited_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> links_;  // by stages, from and to
  std::vector<std::size_t> forward_;   // by chunk: the link to the next chunk
  std::vector<std::size_t> backward_;  // and to the one before
  std::vector<Seconds> free_;          // by link
  // By direction, chunk and micro-batch that read it: when the last message arrives that comes from
  // no neighbour.
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, Seconds> from_further_;
};

}  // namespace

Result<ScheduleTimes> simulate_schedule(const PipelineSchedule& schedule,
                                        const std::vector<ChunkCost>& costs) {
  AUTOPAR_TRY(simulator, ScheduleSimulator::of(schedule));
  return simulator.simulate(costs);
}

Result<ScheduleSimulator> ScheduleSimulator::of(PipelineSchedule schedule) {
  AUTOPAR_TRY(table, table_of(schedule));
  AUTOPAR_TRY(order, runnable_order(schedule, table));
  return ScheduleSimulator(std::make_shared<const OrderedSchedule>(
      OrderedSchedule{std::move(schedule), std::move(table), std::move(order)}));
}

Result<ScheduleTimes> ScheduleSimulator::simulate(const std::vector<ChunkCost>& costs) const {
  AUTOPAR_RETURN_IF_ERROR(verify_costs(ordered_->schedule, costs));
  // The order knows nothing of R that wait for others' R: these are found to wait until no other
  // one does so longer, which takes as many turns as there are in a row.
  std::vector<Seconds> awaited(costs.size());
  for (std::size_t turn = 0;; ++turn) {
    Simulation simulation(ordered_->schedule, ordered_->table, costs);
    ScheduleTimes times = simulation.run(ordered_->order, awaited);
    if (simulation.sums_for_reduce() == awaited) return times;
    if (turn > costs.size()) return input_error("the R of chunks wait for each other in a circle");
    awaited = simulation.sums_for_reduce();
  }
}

}  // namespace autopar
