// The verifier and the simulator of pipelines beside slow ones that are written straight from the
// definitions, on random schedules that no function made, and on schedules that random changes
// broke.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "autopar/pipeline.hpp"

namespace autopar::pipeline_oracle_test {

namespace {

using Random = std::mt19937_64;
std::int64_t below(Random& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}

std::string why_not(const PipelineSchedule& schedule) {
  const Status valid = verify_schedule(schedule);
  return valid.ok() ? "" : valid.error().message;
}

// The pass of a chunk that is one of these phases; none: it stands nowhere.
std::optional<StepAction> action_of(const std::set<StepAction>& all, std::int64_t chunk,
                                    std::int64_t micro_batch, std::vector<StepPhase> phases) {
  for (const StepPhase phase : phases) {
    if (all.count({chunk, phase, micro_batch}) > 0) return StepAction{chunk, phase, micro_batch};
  }
  return std::nullopt;
}

constexpr StepPhase kF = StepPhase::kForward, kB = StepPhase::kBackward;
constexpr StepPhase kI = StepPhase::kInputGradients, kW = StepPhase::kWeightGradients;
constexpr StepPhase kFB = StepPhase::kForwardBackward;

std::set<StepAction> actions_of(const PipelineSchedule& schedule) {
  std::set<StepAction> all;
  for (const StepLine& line : schedule.lines) all.insert(line.begin(), line.end());
  return all;
}

// What must have ended before an action; nothing where one of them stands nowhere.
std::optional<std::vector<StepAction>> needed(const std::set<StepAction>& all, std::int64_t chunks,
                                              const StepAction& action) {
  const auto [chunk, phase, m] = action;
  std::vector<std::optional<StepAction>> found;
  if ((phase == kF || phase == kFB) && chunk > 0) {
    found.push_back(action_of(all, chunk - 1, m, {kF, kFB}));
  }
  if ((phase == kB || phase == kI || phase == kFB) && chunk + 1 < chunks) {
    found.push_back(action_of(all, chunk + 1, m, {kB, kI, kFB}));
  }
  if (phase == kB || phase == kI) found.push_back(action_of(all, chunk, m, {kF}));
  if (phase == kW) found.push_back(action_of(all, chunk, m, {kI}));
  std::vector<StepAction> needs;
  for (const auto& one : found) {
    if (!one) return std::nullopt;
    needs.push_back(*one);
  }
  for (const StepAction& other : all) {
    const bool earlier = (is_pass(other.phase) && other.chunk == chunk) ||
                         (phase == StepPhase::kUpdate && other.phase == StepPhase::kReduce);
    if (!is_pass(phase) && earlier) needs.push_back(other);
  }
  return needs;
}

// Whether every action stands once, in its line, and the lines get to their ends, one action of one
// line after the other.
bool is_valid(const PipelineSchedule& schedule) {
  const auto chunks = static_cast<std::int64_t>(schedule.stage_of_chunk.size());
  const std::set<StepAction> all = actions_of(schedule);
  std::size_t count = 0;
  for (std::size_t l = 0; l < schedule.lines.size(); ++l) {
    count += schedule.lines[l].size();
    for (const StepAction& action : schedule.lines[l]) {
      if (action.chunk < 0 || action.chunk >= chunks ||
          schedule.stage_of_chunk[static_cast<std::size_t>(action.chunk)] !=
              static_cast<std::int64_t>(l) ||
          is_pass(action.phase) !=
              (action.micro_batch >= 0 && action.micro_batch < schedule.micro_batches) ||
          action.micro_batch < -1) {
        return false;
      }
    }
  }
  if (count != all.size()) return false;
  const bool is_trained = std::any_of(all.begin(), all.end(), [](const StepAction& action) {
    return is_pass(action.phase) && action.phase != kF;
  });
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (std::int64_t m = 0; m < schedule.micro_batches; ++m) {
      std::string phases;
      for (const StepPhase phase : {kF, kB, kI, kW, kFB}) {
        if (all.count({chunk, phase, m}) > 0) phases += name_of(phase);
      }
      if (!is_trained && phases == "F") continue;
      if (phases != "FB" && phases != "FIW") return false;  // FB: either F and B, or FB
    }
  }
  std::set<StepAction> ended;
  std::vector<std::size_t> heads(schedule.lines.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t l = 0; l < heads.size(); ++l) {
      if (heads[l] == schedule.lines[l].size()) continue;
      const auto needs = needed(all, chunks, schedule.lines[l][heads[l]]);
      const bool ready =
          needs && std::all_of(needs->begin(), needs->end(),
                               [&](const StepAction& one) { return ended.count(one) > 0; });
      if (!ready) continue;
      ended.insert(schedule.lines[l][heads[l]++]);
      moved = true;
    }
  }
  return ended.size() == all.size();
}

// Any order in which actions can come, on any placement, with chunks in every form.
PipelineSchedule random_schedule(Random& random) {
  PipelineSchedule schedule;
  schedule.micro_batches = 1 + below(random, 5);
  const std::int64_t stages = 1 + below(random, 4);
  const std::int64_t chunks = stages + below(random, 4);
  std::set<StepAction> all;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    schedule.stage_of_chunk.push_back(chunk < stages ? chunk : below(random, stages));
    for (std::int64_t m = 0; m < schedule.micro_batches; ++m) {
      const std::int64_t form = below(random, chunk + 1 == chunks ? 3 : 2);
      if (form == 2) {
        all.insert({chunk, kFB, m});
        continue;
      }
      all.insert({chunk, kF, m});
      all.insert({chunk, form == 0 ? kB : kI, m});
      if (form == 1) all.insert({chunk, kW, m});
    }
    if (below(random, 3) > 0) all.insert({chunk, StepPhase::kUpdate, -1});
    if (below(random, 3) == 0) all.insert({chunk, StepPhase::kReduce, -1});
  }
  std::shuffle(schedule.stage_of_chunk.begin(), schedule.stage_of_chunk.end(), random);
  schedule.lines.resize(static_cast<std::size_t>(stages));
  std::set<StepAction> ended;
  while (ended.size() < all.size()) {
    std::vector<StepAction> ready;
    for (const StepAction& action : all) {
      const auto needs = needed(all, chunks, action);
      if (ended.count(action) == 0 &&
          std::all_of(needs->begin(), needs->end(),
                      [&](const StepAction& one) { return ended.count(one) > 0; })) {
        ready.push_back(action);
      }
    }
    const StepAction next =
        ready[static_cast<std::size_t>(below(random, static_cast<std::int64_t>(ready.size())))];
    ended.insert(next);
    const auto stage = schedule.stage_of_chunk[static_cast<std::size_t>(next.chunk)];
    schedule.lines[static_cast<std::size_t>(stage)].push_back(next);
  }
  return schedule;
}

// Quarters of seconds: sums are exact.
ChunkCost random_cost(Random& random, std::size_t chunk, std::size_t chunks) {
  const auto seconds = [&] { return 0.25 * static_cast<double>(below(random, 9)); };
  const auto pass = [&] {
    return PassSeconds{seconds(), seconds(), seconds(), seconds(), seconds()};
  };
  ChunkCost cost;
  cost.steady = pass();
  if (below(random, 2) == 0) cost.first = pass();
  if (below(random, 2) == 0) cost.last = pass();
  cost.send_forward = seconds();
  cost.send_backward = seconds();
  cost.reduce = seconds();
  cost.update = seconds();
  const auto to = static_cast<std::size_t>(below(random, static_cast<std::int64_t>(chunks)));
  if (to > chunk + 1 || to + 1 < chunk) {
    cost.further.push_back({static_cast<std::int64_t>(to), seconds()});
  }
  if (below(random, 2) == 0 && to != chunk) {
    cost.reduced = {{static_cast<std::int64_t>(to), seconds()}};
  }
  return cost;
}

// Times by sweeps over all actions until nothing changes: each starts at the earliest time that is
// allowed.
class SlowSimulation {
 public:
  SlowSimulation(const PipelineSchedule& schedule, const std::vector<ChunkCost>& costs)
      : schedule_(schedule), costs_(costs), all_(actions_of(schedule)) {}

  std::map<StepAction, ActionTime> run() {
    for (bool changed = true; changed;) {
      changed = false;
      arrivals_.clear();
      for (const StepLine& line : schedule_.lines) send(line);
      for (const StepLine& line : schedule_.lines) {
        Seconds free = 0;
        for (const StepAction& action : line) {
          const ActionTime before = times_[action];
          const Seconds start = std::max(free, ready(action));
          free = start + seconds_of(action);
          times_[action] = {start, free};
          changed = changed || times_[action] != before;
        }
      }
    }
    return times_;
  }

 private:
  std::int64_t stage(std::int64_t chunk) const {
    return schedule_.stage_of_chunk[static_cast<std::size_t>(chunk)];
  }
  const ChunkCost& cost(std::int64_t chunk) const {
    return costs_[static_cast<std::size_t>(chunk)];
  }

  Seconds seconds_of(const StepAction& action) const {
    const ChunkCost& of = cost(action.chunk);
    if (action.phase == StepPhase::kReduce) return of.reduce;
    if (action.phase == StepPhase::kUpdate) return of.update;
    PassSeconds pass = of.steady;
    if (action.micro_batch == schedule_.micro_batches - 1 && of.last) pass = *of.last;
    if (action.micro_batch == 0) pass = of.first.value_or(of.steady);
    return std::map<StepPhase, Seconds>{{kF, pass.forward},
                                        {kB, pass.backward},
                                        {kI, pass.input_gradients},
                                        {kW, pass.weight_gradients},
                                        {kFB, pass.forward_backward}}[action.phase];
  }

  // Activations go on, gradients back.
  static bool is_of(std::int64_t step, StepPhase phase) {
    if (phase == kFB) return true;
    return step > 0 ? phase == kF : phase == kB || phase == kI;
  }

  // The messages of a line, one behind the other on the link to each stage, its own too.
  void send(const StepLine& line) {
    std::map<std::int64_t, Seconds> free;  // by the stage that they go to
    for (const StepAction& action : line) {
      const ChunkCost& own = cost(action.chunk);
      std::vector<FurtherMessage> all = {{action.chunk + 1, own.send_forward},
                                         {action.chunk - 1, own.send_backward}};
      all.insert(all.end(), own.further.begin(), own.further.end());
      const bool reduces = action.phase == StepPhase::kReduce;
      if (reduces) all = own.reduced.value_or(std::vector<FurtherMessage>());
      for (const auto& [to, seconds, for_reduce] : all) {
        if (reduces && for_reduce) read_by_reduce_.insert({action, to - action.chunk});
        const std::int64_t step = to - action.chunk;
        if (!reduces && !is_of(step, action.phase)) continue;
        if (to < 0 || to >= static_cast<std::int64_t>(costs_.size())) continue;
        Seconds& arrival = arrivals_[{action, step}];
        arrival = times_[action].end;
        if (reduces && seconds == 0) continue;
        arrival = std::max(arrival, free[stage(to)]) + seconds;
        free[stage(to)] = arrival;
      }
    }
  }

  Seconds ready(const StepAction& action) {
    Seconds time = 0;
    const auto needs = needed(all_, static_cast<std::int64_t>(costs_.size()), action);
    for (const StepAction& one : needs.value()) {
      const std::int64_t step = action.chunk - one.chunk;
      if (one.phase == StepPhase::kReduce && cost(one.chunk).reduced) continue;
      const bool is_message = is_pass(action.phase) && step != 0;
      time = std::max(time, is_message ? arrivals_.at({one, step}) : times_[one].end);
    }
    for (const auto& [way, arrival] : arrivals_) {
      const auto& [from, step] = way;
      const bool is_read =
          from.micro_batch == action.micro_batch && from.chunk + step == action.chunk;
      const bool is_for_reduce =
          action.phase == StepPhase::kReduce && read_by_reduce_.count(way) > 0;
      const bool is_sum =
          from.phase == StepPhase::kReduce && (action.phase == StepPhase::kUpdate || is_for_reduce);
      const bool is_further =
          is_pass(action.phase) && std::abs(step) > 1 && is_of(step, action.phase);
      if (is_read && (is_sum || is_further)) time = std::max(time, arrival);
    }
    return time;
  }

  const PipelineSchedule& schedule_;
  const std::vector<ChunkCost>& costs_;
  std::set<StepAction> all_;
  std::map<StepAction, ActionTime> times_;
  std::map<std::pair<StepAction, std::int64_t>, Seconds> arrivals_;
  std::set<std::pair<StepAction, std::int64_t>> read_by_reduce_;
};

}  // namespace

namespace {

// The last R of a line reads what others' R send it, so that none of these can wait for it.
void let_a_reduction_wait(const StepLine& line, std::vector<ChunkCost>& costs) {
  const auto last = std::find_if(line.rbegin(), line.rend(), [](const StepAction& action) {
    return action.phase == StepPhase::kReduce;
  });
  if (last == line.rend()) return;
  for (ChunkCost& cost : costs) {
    if (!cost.reduced) continue;
    for (FurtherMessage& message : *cost.reduced) message.for_reduce = message.to == last->chunk;
  }
}

}  // namespace

TEST_CASE("random schedules take as long as the slow simulation says", "[pipeline]") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const PipelineSchedule schedule = random_schedule(random);
    INFO("seed " << seed << "\n" << schedule_text(schedule.lines));
    REQUIRE(is_valid(schedule));
    REQUIRE(why_not(schedule) == "");
    std::vector<ChunkCost> costs;
    for (std::size_t c = 0; c < schedule.stage_of_chunk.size(); ++c) {
      costs.push_back(random_cost(random, c, schedule.stage_of_chunk.size()));
    }
    let_a_reduction_wait(schedule.lines[seed % schedule.lines.size()], costs);
    const auto times = simulate_schedule(schedule, costs);
    REQUIRE(times.ok());
    std::map<StepAction, ActionTime> slow = SlowSimulation(schedule, costs).run();
    Seconds makespan = 0;
    for (std::size_t l = 0; l < schedule.lines.size(); ++l) {
      Seconds busy = 0;
      for (std::size_t i = 0; i < schedule.lines[l].size(); ++i) {
        const ActionTime expected = slow.at(schedule.lines[l][i]);
        REQUIRE(times->actions[l][i] == expected);
        busy += expected.end - expected.start;
        makespan = std::max(makespan, expected.end);
      }
      REQUIRE(times->busy[l] == busy);
      REQUIRE(times->span[l] ==
              slow.at(schedule.lines[l].back()).end - slow.at(schedule.lines[l].front()).start);
    }
    REQUIRE(times->makespan == makespan);
    for (std::size_t l = 0; l < schedule.lines.size(); ++l) {
      REQUIRE(times->idle[l] == makespan - times->busy[l]);
    }
  }
}

namespace {

// Changes one thing; most of these are mistakes.
void change(PipelineSchedule& schedule, Random& random) {
  const auto any_line = [&]() -> StepLine& {
    return schedule.lines[static_cast<std::size_t>(
        below(random, static_cast<std::int64_t>(schedule.lines.size())))];
  };
  StepLine& line = any_line();
  if (line.empty()) return;
  const auto any = [&] { return below(random, static_cast<std::int64_t>(line.size())); };
  StepAction& action = line[static_cast<std::size_t>(any())];
  switch (below(random, 9)) {
    case 0:
      line.erase(line.begin() + any());
      break;
    case 1:
      line.insert(line.begin() + any(), StepAction(action));
      break;
    case 2: {
      const StepAction moved = action;
      std::erase(line, moved);
      any_line().push_back(moved);
      break;
    }
    case 3:
      action.phase = static_cast<StepPhase>(below(random, 7));
      break;
    case 4:
      action.micro_batch += below(random, 2) == 0 ? 1 : -1;
      break;
    case 5:
      action.chunk += below(random, 2) == 0 ? 1 : -1;
      break;
    case 6:
    case 7:
      if (line.size() > 1) {
        const auto first = static_cast<std::size_t>(any()) % (line.size() - 1);
        std::swap(line[first], line[first + 1]);
      }
      break;
    default:
      std::swap(action, line[static_cast<std::size_t>(any())]);
  }
}

}  // namespace

TEST_CASE("what random changes break is refused, and nothing else", "[pipeline]") {
  int refused = 0, kept = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    PipelineSchedule schedule;
    const std::vector<ScheduleKind> kinds = schedule_kinds();
    if (seed % 4 == 0) {
      schedule = random_schedule(random);
    } else {
      const ScheduleKind kind = kinds[seed % kinds.size()];
      const bool one = make_schedule(kind, {2, 1, 4}).ok();
      const std::int64_t stages = 1 + below(random, 3);
      schedule = *make_schedule(kind, {stages, one ? 1 : 2, stages * (2 + below(random, 2))});
      if (below(random, 2) == 0) add_updates(schedule, below(random, 2) == 0);
    }
    for (std::int64_t i = 0; i <= below(random, 3); ++i) change(schedule, random);
    INFO("seed " << seed << "\n" << schedule_text(schedule.lines) << why_not(schedule));
    const bool valid = is_valid(schedule);
    REQUIRE((why_not(schedule) == "") == valid);
    const std::vector<ChunkCost> costs(schedule.stage_of_chunk.size());
    const auto times = simulate_schedule(schedule, costs);
    REQUIRE(times.ok() == valid);
    if (!valid) REQUIRE(times.error().message == why_not(schedule));
    ++(valid ? kept : refused);
  }
  CHECK(refused > 2000);
  CHECK(kept > 200);
}

TEST_CASE("costs that are none", "[pipeline]") {
  const PipelineSchedule schedule = *make_schedule(ScheduleKind::k1F1B, {2, 1, 2});
  const auto refusal = [&](const std::vector<ChunkCost>& costs) {
    const auto times = simulate_schedule(schedule, costs);
    return times.ok() ? "" : times.error().message;
  };
  std::vector<ChunkCost> costs(2);
  CHECK(refusal(costs) == "");
  CHECK(simulate_schedule(schedule, costs)->bubble_rate == 0);
  costs[1].steady.backward = -1;
  CHECK(refusal(costs) == "costs of chunk 1: B: expected seconds of 0 or more, found -1.000000");
  costs[1] = {};
  costs[0].last = PassSeconds{.forward = std::numeric_limits<double>::quiet_NaN()};
  CHECK(refusal(costs) == "costs of chunk 0: last F: expected seconds of 0 or more, found nan");
  costs[0] = {};
  costs[0].send_forward = std::numeric_limits<double>::infinity();
  CHECK(refusal(costs) ==
        "costs of chunk 0: send_forward: expected seconds of 0 or more, found inf");
  costs.pop_back();
  CHECK(refusal(costs) == "expected the costs of 2 chunks, found 1");
}

}  // namespace autopar::pipeline_oracle_test
