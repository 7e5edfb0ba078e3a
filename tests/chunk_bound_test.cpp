// What chunks take at least of the time of their stages, against simulated schedules.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <algorithm>
#include <random>
#include <tuple>

#include "planning/pipelines/chunk_bound.hpp"
#include "planning/pipelines/even_cuts.hpp"

using namespace autopar;

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
    double nearest = 0;
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
      const Parts parts(forward, backward, inputs, no_units, 1,
                        static_cast<double>(schedule.micro_batches));
      const ChunkBound bound(parts, nullptr, 1, nullptr, nullptr, schedule, chunks);
      std::vector<Seconds> of_stage(stages, 0);
      for (std::size_t c = 0; c < chunks; ++c) {
        of_stage[shapes[c].stage] += chunks == stages ? bound.of_stage(shapes[c], c, c + 1, 0)
                                                      : bound.of_several(shapes[c], c, c + 1);
      }
      for (const Seconds least : of_stage) {
        INFO(name_of(asked.kind) << " of " << stages << " stages, round " << round);
        CHECK(least <= times->makespan * (1 + 1e-12));
        nearest = std::max(nearest, least / times->makespan);
      }
    }
    CHECK(nearest > 0.85);
  }
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
