// What schedules take at least, and cuts that suit them, against all cuts of small steps.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "planning/pipelines/moved_cuts.hpp"
#include "planning/pipelines/path_bound.hpp"

namespace autopar::path_bound_test {

namespace {

struct Asked {
  ScheduleKind kind;
  PipelineShape shape;
};
const std::vector<Asked> kShapes = {{ScheduleKind::k1F1B, {3, 1, 5}},
                                    {ScheduleKind::kInterleaved, {2, 2, 4}},
                                    {ScheduleKind::kZbH1, {3, 1, 4}},
                                    {ScheduleKind::kZbV, {2, 2, 5}},
                                    {ScheduleKind::kDualPipeV, {2, 2, 6}}};

PipelineSchedule schedule_of(const Asked& shape) {
  auto made = make_schedule(shape.kind, shape.shape);
  REQUIRE(made.ok());
  return backward_apart(std::move(*made));
}

// Of each of so many places.
struct Places {
  std::vector<double> forward, inputs, weights, waits;  // waits: of a pass beside its ops
  LeastOfPart part(std::size_t from, std::size_t to) const {
    LeastOfPart of;
    for (std::size_t p = from; p < to; ++p) {
      of.forward += forward[p];
      of.inputs += inputs[p];
      of.backward += inputs[p] + weights[p];
      of.pass += forward[p] + inputs[p] + weights[p] + waits[p];
    }
    return of;
  }
};

Places random_step(std::mt19937& random, std::size_t places) {
  std::uniform_int_distribution<int> number(1, 9);
  Places step;
  for (std::size_t p = 0; p < places; ++p) {
    step.forward.push_back(number(random));
    step.inputs.push_back(number(random));
    step.weights.push_back(number(random));
    step.waits.push_back(number(random) / 4);
  }
  return step;
}

// All ways to end chunks.
void for_all_ends(std::size_t chunks, std::size_t end,
                  const std::function<void(const std::vector<std::size_t>&)>& found,
                  std::vector<std::size_t> so_far = {}) {
  if (so_far.size() + 1 == chunks) {
    so_far.push_back(end);
    found(so_far);
    return;
  }
  const std::size_t left = chunks - so_far.size() - 1;
  for (std::size_t to = so_far.empty() ? 1 : so_far.back() + 1; to + left <= end; ++to) {
    so_far.push_back(to);
    for_all_ends(chunks, end, found, so_far);
    so_far.pop_back();
  }
}

// What a plan may make of it: the waiting in either pass, more of the backward pass in its first
// part, or all of it.
std::vector<ChunkCost> costs_of(const Places& step, const std::vector<std::size_t>& ends,
                                std::mt19937& random) {
  std::uniform_real_distribution<double> part(0, 1);
  std::vector<ChunkCost> costs;
  std::size_t from = 0;
  for (const std::size_t to : ends) {
    const LeastOfPart of = step.part(from, to);
    const double more = of.pass - of.forward - of.backward;
    ChunkCost cost;
    const double in_forward = more * part(random);
    const double moved = part(random) < 0.3 ? 1 : part(random) / 2;
    cost.steady.forward = of.forward + in_forward;
    cost.steady.backward = of.backward + more - in_forward;
    cost.steady.weight_gradients = (of.backward - of.inputs) * (1 - moved);
    cost.steady.input_gradients = cost.steady.backward - cost.steady.weight_gradients;
    costs.push_back(cost);
    from = to;
  }
  return costs;
}

}  // namespace

TEST_CASE("a longest path takes as long as the schedule") {
  std::mt19937 random(3);
  for (const Asked& shape : kShapes) {
    const PipelineSchedule schedule = schedule_of(shape);
    const std::size_t chunks = schedule.stage_of_chunk.size();
    for (int round = 0; round < 20; ++round) {
      const Places step = random_step(random, chunks);
      std::vector<std::size_t> ends;
      for (std::size_t c = 0; c < chunks; ++c) ends.push_back(c + 1);
      const std::vector<ChunkCost> costs = costs_of(step, ends, random);
      const auto path = longest_path(schedule, costs);
      REQUIRE(path.ok());
      Seconds sum = 0;
      for (std::size_t c = 0; c < chunks; ++c) {
        const PassSeconds& of = costs[c].steady;
        const bool is_whole =
            shape.kind == ScheduleKind::k1F1B || shape.kind == ScheduleKind::kInterleaved;
        sum += (*path)[c].forward * of.forward;
        if (is_whole) {
          CHECK((*path)[c].input_gradients == (*path)[c].weight_gradients);
          sum += (*path)[c].input_gradients * of.backward;
        } else {
          sum += (*path)[c].input_gradients * of.input_gradients +
                 (*path)[c].weight_gradients * of.weight_gradients;
        }
      }
      const auto times = simulate_schedule(schedule, costs);
      REQUIRE(times.ok());
      CHECK(sum == Approx(times->makespan).epsilon(1e-12));
    }
  }
}

TEST_CASE("no cuts take less than the bound by paths") {
  std::mt19937 random(5);
  for (const Asked& shape : kShapes) {
    const PipelineSchedule schedule = schedule_of(shape);
    const std::size_t chunks = schedule.stage_of_chunk.size();
    double closeness = 0;
    constexpr int kRounds = 12;
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t end = chunks + 3;
      const Places step = random_step(random, end);
      const LeastOfParts part = [&](std::size_t from, std::size_t to) {
        return step.part(from, to);
      };
      const auto bound = bound_by_paths(schedule, part, end, {});
      REQUIRE(bound.ok());
      Seconds least = std::numeric_limits<Seconds>::infinity();
      for_all_ends(chunks, end, [&](const std::vector<std::size_t>& ends) {
        const auto times = simulate_schedule(schedule, costs_of(step, ends, random));
        REQUIRE(times.ok());
        least = std::min(least, times->makespan);
        const auto of_ends = bound_by_paths(schedule, part, end, ends);
        REQUIRE(of_ends.ok());
        CHECK(*of_ends <= times->makespan * (1 + 1e-9));
        CHECK(*of_ends >= 0.6 * times->makespan);
      });
      CHECK(*bound <= least * (1 + 1e-9));
      closeness += *bound / least / kRounds;
    }
    CHECK(closeness > 0.75);
    // More chunks than places: no cuts, no bound.
    const auto none = bound_by_paths(schedule,
                                     [](std::size_t, std::size_t) {
                                       return LeastOfPart{1, 2, 1, 3};
                                     },
                                     chunks - 1, {});
    REQUIRE(none.ok());
    CHECK(*none == 0);
    // Sums that are rounded: the first part of a backward pass may be as long as all of it.
    const auto rounded = bound_by_paths(schedule,
                                        [](std::size_t, std::size_t) {
                                          return LeastOfPart{1, 2, 2 + 1e-12, 3 - 1e-12};
                                        },
                                        chunks, {});
    REQUIRE(rounded.ok());
    CHECK(*rounded > 3);
  }
}

TEST_CASE("cuts are moved to where the schedule is shorter") {
  std::mt19937 random(9);
  int moved = 0;
  for (const Asked& shape : kShapes) {
    const PipelineSchedule schedule = schedule_of(shape);
    const std::size_t chunks = schedule.stage_of_chunk.size();
    for (int round = 0; round < 10; ++round) {
      const std::size_t end = chunks + 6;
      const Places step = random_step(random, end);
      OpSeconds seconds{step.forward, step.inputs, step.inputs};
      for (std::size_t p = 0; p < end; ++p) seconds.backward[p] += step.weights[p];
      std::vector<OpId> places, cuts;
      for (std::size_t p = 1; p < end; ++p) places.push_back(OpId(static_cast<std::int64_t>(p)));
      for (std::size_t c = 1; c < chunks; ++c) cuts.push_back(places[c - 1]);
      const auto time = [&](const std::vector<OpId>& of) {
        const auto times = simulate_schedule(schedule, costs_by_ops(seconds, nullptr, of, 2));
        REQUIRE(times.ok());
        return times->makespan;
      };
      const auto better = moved_cuts(schedule, places, {cuts}, seconds, nullptr, {}, 2);
      REQUIRE(better.ok());
      CHECK(std::is_sorted(better->begin(), better->end()));
      CHECK(better->size() == cuts.size());
      CHECK(time(*better) <= time(cuts));
      moved += time(*better) < time(cuts) ? 1 : 0;
      // Nothing one place away is better.
      for (std::size_t c = 0; c < cuts.size(); ++c) {
        for (const int by : {-1, 1}) {
          std::vector<OpId> other = *better;
          other[c] = OpId(static_cast<std::int64_t>(other[c].index()) + by);
          const bool is_apart = (c == 0 || other[c - 1] < other[c]) &&
                                (c + 1 == other.size() || other[c] < other[c + 1]) &&
                                other[c].index() > 0 && other[c].index() < end;
          if (is_apart) CHECK(time(other) >= time(*better) * (1 - 1e-3));
        }
      }
    }
  }
  CHECK(moved > 30);
}

TEST_CASE("cuts are moved from where much is sent") {
  // Ops that all take as long, three to a chunk; then what is cut now is what takes long to send.
  const Asked shape = kShapes[0];
  const PipelineSchedule schedule = schedule_of(shape);
  const std::size_t chunks = schedule.stage_of_chunk.size(), end = 3 * chunks;
  const std::vector<Seconds> one(end, 1);
  const OpSeconds seconds{one, one, one};
  std::vector<OpId> places, cuts;
  for (std::size_t p = 1; p < end; ++p) places.push_back(OpId(static_cast<std::int64_t>(p)));
  for (std::size_t c = 1; c < chunks; ++c) cuts.push_back(places[3 * c - 1]);
  std::vector<Seconds> sending(end, 0);
  const auto even = moved_cuts(schedule, places, {cuts}, seconds, nullptr, sending, 1);
  REQUIRE(even.ok());
  for (const OpId cut : cuts) sending[cut.index()] = 100;
  const auto moved = moved_cuts(schedule, places, {cuts}, seconds, nullptr, sending, 1);
  REQUIRE(moved.ok());
  CHECK(*even == cuts);
  for (std::size_t c = 0; c < cuts.size(); ++c) {
    if (schedule.stage_of_chunk[c] != schedule.stage_of_chunk[c + 1]) CHECK((*moved)[c] != cuts[c]);
  }
}

}  // namespace autopar::path_bound_test
