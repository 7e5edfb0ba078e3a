// What chunks take at least of the time of their stages, against simulated schedules.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

#include "planning/pipelines/chunk_bound.hpp"
#include "planning/pipelines/even_cuts.hpp"

namespace autopar::chunk_bound_test {

namespace {

struct Asked {
  ScheduleKind kind;
  PipelineShape shape;
};
const std::vector<Asked> kShapes = {
    {ScheduleKind::kGPipe, {3, 1, 4}},       {ScheduleKind::k1F1B, {3, 1, 5}},
    {ScheduleKind::k1F1B, {4, 1, 4}},        {ScheduleKind::kInterleaved, {2, 2, 4}},
    {ScheduleKind::kInterleaved, {4, 4, 4}}, {ScheduleKind::kInterleaved, {4, 3, 8}},
    {ScheduleKind::kZbH1, {3, 1, 4}},        {ScheduleKind::kZbV, {2, 2, 5}},
    {ScheduleKind::kZbV, {4, 2, 8}},         {ScheduleKind::kDualPipeV, {2, 2, 6}}};

}  // namespace

TEST_CASE("no schedule takes less than what its chunks take at least") {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> number(1, 9);
  for (const Asked& asked : kShapes) {
    auto made = make_schedule(asked.kind, asked.shape);
    REQUIRE(made.ok());
    const PipelineSchedule schedule = backward_apart(std::move(*made));
    const std::size_t chunks = schedule.stage_of_chunk.size(), stages = schedule.lines.size();
    const std::vector<ChunkShape> shapes = shapes_of(schedule);
    double nearest = 0, nearest_anywhere = 0;
    for (int round = 0; round < 100; ++round) {
      // One place per chunk; in the first round all are alike.
      std::vector<Seconds> forward = {0}, backward = {0}, inputs = {0};
      std::vector<ChunkCost> costs(chunks);
      for (ChunkCost& cost : costs) {
        cost.steady.forward = round == 0 ? 1 : number(random);
        cost.steady.input_gradients = round == 0 ? 1 : number(random);
        cost.steady.weight_gradients = round == 0 ? 1 : number(random);
        cost.steady.backward = cost.steady.input_gradients + cost.steady.weight_gradients;
        forward.push_back(forward.back() + cost.steady.forward);
        backward.push_back(backward.back() + cost.steady.backward);
        inputs.push_back(inputs.back() + cost.steady.input_gradients);
      }
      const auto times = simulate_schedule(schedule, costs);
      REQUIRE(times.ok());
      const std::vector<std::size_t> no_units = {0};
      const Parts parts(forward, backward, inputs, no_units, 1);
      const ChunkSums sums(static_cast<double>(schedule.micro_batches));
      const ChunkBound bound(parts, sums, schedule, chunks);
      std::vector<Seconds> of_stage(stages, 0), alone(stages, 0);
      for (std::size_t c = 0; c < chunks; ++c) {
        of_stage[shapes[c].stage] += chunks == stages ? bound.of_stage(shapes[c], c, c + 1, 0)
                                                      : bound.of_several(shapes[c], c, c + 1);
        alone[shapes[c].stage] += bound.alone(shapes[c], c, c + 1);
      }
      for (std::size_t s = 0; s < stages; ++s) {
        INFO(name_of(asked.kind) << " of " << stages << " stages, round " << round);
        CHECK(of_stage[s] <= times->makespan * (1 + 1e-12));
        CHECK(alone[s] <= times->makespan * (1 + 1e-12));
        nearest = std::max(nearest, of_stage[s] / times->makespan);
      }
      const Seconds anywhere = bound.anywhere(stages, chunks == stages);
      CHECK(anywhere <= times->makespan * (1 + 1e-12));
      nearest_anywhere = std::max(nearest_anywhere, anywhere / times->makespan);
    }
    CHECK(nearest > 0.85);
    CHECK(nearest_anywhere > 0.6);
  }
}

TEST_CASE("weighted sums over units and parts of units are no more than the busiest stream") {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> some(0, 1);
  std::uniform_int_distribution<int> die(0, 5);
  auto schedule = make_schedule(ScheduleKind::k1F1B, {1, 1, 4});
  REQUIRE(schedule.ok());
  const std::vector<ChunkShape> shapes = shapes_of(*schedule);
  const double passes = 4, devices = 2;
  double nearest = 0;
  for (int round = 0; round < 300; ++round) {
    StreamSum sum{StreamTimes()};
    for (Seconds* weight : sum.weights->all()) *weight = std::exp(5 * some(random));
    const Seconds all = sum.weights->weighted({1, {1, 1, 1}, 1, 1});
    for (Seconds* weight : sum.weights->all()) *weight /= all;
    ChunkSums sums(passes);
    sums.step.of_compute = sum.least_of_compute(passes, 1);
    sums.waiting = sum.weights->compute + sum.weights->tail;
    // Places are one by one; a unit has up to three, and every sixth counts with its compute alone.
    const std::size_t end = 12;
    std::vector<StreamTimes> busy(end);
    std::vector<Seconds> forward = {0}, backward = {0};
    std::vector<std::size_t> unit_ends = {0};
    sums.step.until = {0};
    Seconds of_unit = 0, compute_of_unit = 0;
    for (std::size_t p = 0; p < end; ++p) {
      const Seconds there = some(random), back = some(random), waits = some(random) / 4;
      forward.push_back(forward.back() + there);
      backward.push_back(backward.back() + back);
      const Seconds compute = (there + back) / devices;
      // Of the last pass only the forward part is in the tail.
      busy[p].compute = passes * compute + waits;
      busy[p].tail = (passes - 1) * compute + there / devices + waits;
      // Some are busy with compute, others with a link or the host.
      for (Seconds& link : busy[p].links) link = die(random) == 0 ? 9 * some(random) : 0;
      busy[p].host = die(random) < 2 ? 9 * some(random) : 0;
      of_unit += busy[p].weighted(*sum.weights);
      compute_of_unit += compute;
      if (p + 1 < end && die(random) > 1 && p + 1 - unit_ends.back() < 3) continue;
      unit_ends.push_back(p + 1);
      const bool is_small = die(random) == 0;
      sums.step.until.push_back(sums.step.until.back() +
                                (is_small ? sums.step.of_compute * compute_of_unit : of_unit));
      of_unit = compute_of_unit = 0;
    }
    const Parts parts(forward, backward, forward, unit_ends, devices);
    const ChunkBound bound(parts, sums, *schedule, end);
    for (std::size_t from = 0; from < end; ++from) {
      StreamTimes chunk;
      chunk.compute = chunk.tail = forward[from] / devices;  // waiting
      for (std::size_t to = from + 1; to <= end; ++to) {
        const auto in_chunk = chunk.all(), in_part = busy[to - 1].all();
        for (std::size_t s = 0; s < in_chunk.size(); ++s) *in_chunk[s] += *in_part[s];
        const Seconds least = bound.alone(shapes[0], from, to);
        INFO("round " << round << ", from " << from << " to " << to);
        CHECK(least <= chunk.weighted(*sum.weights) * (1 + 1e-12));
        CHECK(least <= chunk.most() * (1 + 1e-12));
        nearest = std::max(nearest, least / chunk.most());
      }
    }
  }
  CHECK(nearest > 0.8);
}

TEST_CASE("what is taken off for ops that units share is no less than they count for") {
  const StreamTimes weights{0.3, {0.2, 0, 0}, 0.1, 0.4};
  const StreamSum sum{weights};
  // Compute of 2 s in all passes, all of it before the last backward pass, by 5 s of the host.
  CHECK(sum.most_of_kernels(2, 5) == Approx(0.3 * 2 + 0.1 * 2 + 0.4 * 5));
  CHECK(sum.least_of_compute(8, 1) == Approx(0.3 * 8 + 0.1 * 7));
  CHECK(sum.least_of_compute(1, 2) == Approx(0.3));
  // One after the other.
  CHECK(StreamSum().most_of_kernels(2, 5) == Approx(7));
  CHECK(StreamSum().least_of_compute(8, 1) == Approx(8));
}

TEST_CASE("even cuts give each stage as many units") {
  for (const auto& [units, stages, rows] :
       {std::tuple<std::size_t, std::size_t, std::size_t>{126, 16, 7},
        {18, 4, 4},
        {16, 4, 4},
        {32, 3, 2},
        {7, 2, 3}}) {
    const auto ways = even_cuts(units, stages, rows);
    CHECK(ways.size() == (units % (stages * rows) == 0 ? 1 : rows));
    for (const std::vector<std::size_t>& cuts : ways) {
      REQUIRE(cuts.size() + 1 == stages * rows);
      std::vector<std::size_t> of_stage(stages, 0);
      std::size_t before = 0;
      for (std::size_t c = 0; c <= cuts.size(); ++c) {
        const std::size_t until = c < cuts.size() ? cuts[c] : units;
        const std::size_t has = until - before;
        CHECK((has == units / (stages * rows) || has == units / (stages * rows) + 1));
        of_stage[c % stages] += has;
        before = until;
      }
      const auto [least, most] = std::minmax_element(of_stage.begin(), of_stage.end());
      CHECK(*most - *least <= 1);
    }
  }
  CHECK(even_cuts(7, 4, 2).empty());
}

}  // namespace autopar::chunk_bound_test
