// Named schedules: their lists, their closed forms in the literature, what they hold in memory, and
// what is refused. Beside it: pipeline_data_test (lists and tables of others), pipeline_oracle_test
// (random schedules) and pipeline_exhaustive_test (the best there is).
#include "autopar/pipeline.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace autopar::pipeline_test {

namespace {

using Catch::Matchers::Contains;

PipelineSchedule made(ScheduleKind kind, const PipelineShape& shape) {
  auto schedule = make_schedule(kind, shape);
  INFO((schedule.ok() ? "" : schedule.error().message));
  REQUIRE(schedule.ok());
  return std::move(*schedule);
}

std::string why_not(const PipelineSchedule& schedule) {
  const Status valid = verify_schedule(schedule);
  return valid.ok() ? "" : valid.error().message;
}

std::string why_not(ScheduleKind kind, const PipelineShape& shape) {
  const auto schedule = make_schedule(kind, shape);
  return schedule.ok() ? "" : schedule.error().message;
}

// Equal chunks, no time for messages.
std::vector<ChunkCost> equal_costs(const PipelineSchedule& schedule, Seconds f, Seconds i,
                                   Seconds w) {
  ChunkCost cost;
  cost.steady = {f, i + w, i, w, f + i + w};
  return std::vector<ChunkCost>(schedule.stage_of_chunk.size(), cost);
}

ScheduleTimes simulated(const PipelineSchedule& schedule, const std::vector<ChunkCost>& costs) {
  auto times = simulate_schedule(schedule, costs);
  INFO((times.ok() ? "" : times.error().message));
  REQUIRE(times.ok());
  return std::move(*times);
}

Seconds longest_span(const ScheduleTimes& times) {
  return *std::max_element(times.span.begin(), times.span.end());
}

std::vector<PipelineShape> small_shapes(ScheduleKind kind) {
  std::vector<PipelineShape> shapes;
  for (std::int64_t stages = 1; stages <= 6; ++stages) {
    for (std::int64_t chunks = 1; chunks <= 3; ++chunks) {
      for (std::int64_t micro_batches = 1; micro_batches <= 14; ++micro_batches) {
        const PipelineShape shape{stages, chunks, micro_batches};
        if (make_schedule(kind, shape).ok()) shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

std::string text_of(const PipelineShape& shape) {
  return std::to_string(shape.stages) + " x " + std::to_string(shape.chunks_per_stage) + ", " +
         std::to_string(shape.micro_batches);
}

}  // namespace

TEST_CASE("names of schedules", "[pipeline]") {
  std::string names;
  for (const ScheduleKind kind : schedule_kinds()) {
    names += std::string(name_of(kind)) + " ";
    CHECK(parse_schedule_kind(name_of(kind)) == kind);
  }
  CHECK(names == "gpipe 1f1b interleaved zb-h1 zb-v dualpipev ");
  CHECK_FALSE(parse_schedule_kind("1F1B"));
  CHECK_FALSE(parse_schedule_kind(""));
}

TEST_CASE("schedules as lists", "[pipeline]") {
  const auto text = [](ScheduleKind kind, const PipelineShape& shape) {
    return schedule_text(made(kind, shape).lines);
  };
  CHECK(text(ScheduleKind::kGPipe, {2, 1, 3}) ==
        "0F0,0F1,0F2,0B0,0B1,0B2\n"
        "1F0,1F1,1F2,1B0,1B1,1B2\n");
  CHECK(text(ScheduleKind::k1F1B, {3, 1, 4}) ==
        "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
        "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n"
        "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
  CHECK(text(ScheduleKind::kInterleaved, {2, 2, 2}) ==
        "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n"
        "1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  CHECK(text(ScheduleKind::kZbH1, {3, 1, 4}) ==
        "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
        "1F0,1F1,1I0,1F2,1I1,1W0,1F3,1I2,1W1,1I3,1W2,1W3\n"
        "2F0,2I0,2F1,2I1,2F2,2I2,2W0,2F3,2I3,2W1,2W2,2W3\n");
  CHECK(text(ScheduleKind::kZbV, {2, 2, 3}) ==
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,0I2,0W2\n"
        "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,2W2,1W2\n");
  CHECK(text(ScheduleKind::kDualPipeV, {2, 2, 4}) ==
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,0F3,3B1,3F2,0B0,3B2,3F3,0B1,3B3,0I2,0W2,0I3,0W3\n"
        "1F0,2F0,1F1,2F1,1F2,2B0,2F2,1B0,1F3,2B1,2F3,1B1,2B2,1B2,2I3,1I3,2W3,1W3\n");
}

TEST_CASE("where chunks are", "[pipeline]") {
  const auto stages = [](ScheduleKind kind, const PipelineShape& shape) {
    return made(kind, shape).stage_of_chunk;
  };
  CHECK(stages(ScheduleKind::k1F1B, {3, 1, 1}) == std::vector<std::int64_t>{0, 1, 2});
  CHECK(stages(ScheduleKind::kInterleaved, {2, 3, 2}) ==
        std::vector<std::int64_t>{0, 1, 0, 1, 0, 1});
  CHECK(stages(ScheduleKind::kZbV, {3, 2, 1}) == std::vector<std::int64_t>{0, 1, 2, 2, 1, 0});
  CHECK(stages(ScheduleKind::kDualPipeV, {2, 2, 4}) == std::vector<std::int64_t>{0, 1, 1, 0});
}

TEST_CASE("shapes that a schedule cannot have", "[pipeline]") {
  CHECK(why_not(ScheduleKind::k1F1B, {2, 2, 4}) ==
        "schedule 1f1b: expected 1 chunk per stage, found 2; try interleaved, zb-v or dualpipev");
  CHECK(why_not(ScheduleKind::kInterleaved, {2, 1, 4}) ==
        "schedule interleaved: expected 2 or more chunks per stage, found 1; try gpipe, 1f1b or "
        "zb-h1");
  CHECK(why_not(ScheduleKind::kZbV, {2, 3, 4}) ==
        "schedule zb-v: expected 2 chunks per stage, found 3; try interleaved");
  CHECK(why_not(ScheduleKind::kInterleaved, {4, 2, 6}) ==
        "schedule interleaved: expected a multiple of the 4 stages as number of micro-batches, "
        "found 6; try 4 or 8 micro-batches, or 1f1b");
  CHECK_THAT(why_not(ScheduleKind::kInterleaved, {4, 2, 3}), Contains("try 4 micro-batches"));
  CHECK(why_not(ScheduleKind::kDualPipeV, {4, 2, 7}) ==
        "schedule dualpipev: expected at least twice as many micro-batches as the 4 stages, found "
        "7; try 8 micro-batches, or zb-v");
  CHECK_THAT(why_not(ScheduleKind::kGPipe, {0, 1, 4}), Contains("at least 1 of each"));
  CHECK_THAT(why_not(ScheduleKind::kGPipe, {4, 1, -1}), Contains("at least 1 of each"));
  const std::int64_t many = std::int64_t{1} << 40;
  CHECK_THAT(why_not(ScheduleKind::kGPipe, {many, 1, many}), Contains("are too many"));
  CHECK_THAT(why_not(ScheduleKind::kInterleaved, {many, many, many}), Contains("are too many"));
}

TEST_CASE("every schedule of every small shape is valid, and is read back", "[pipeline]") {
  for (const ScheduleKind kind : schedule_kinds()) {
    const std::vector<PipelineShape> shapes = small_shapes(kind);
    CHECK(shapes.size() >= 27);
    for (const PipelineShape& shape : shapes) {
      INFO(name_of(kind) << " " << text_of(shape));
      PipelineSchedule schedule = made(kind, shape);
      REQUIRE(why_not(schedule) == "");
      REQUIRE(schedule.stage_of_chunk.size() ==
              static_cast<std::size_t>(shape.stages * shape.chunks_per_stage));
      const auto lines = parse_schedule(schedule_text(schedule.lines), {}, "text");
      REQUIRE(lines.ok());
      const auto again = schedule_of_lines(*lines);
      REQUIRE(again.ok());
      REQUIRE(*again == schedule);
      schedule = backward_apart(std::move(schedule));
      REQUIRE(why_not(schedule) == "");
      add_updates(schedule, true);
      REQUIRE(why_not(schedule) == "");
    }
  }
}

// Stages of F, I and W seconds; the bubble of the longest span.
Seconds bubble_of(ScheduleKind kind, const PipelineShape& shape, Seconds f, Seconds i, Seconds w) {
  const PipelineSchedule schedule = made(kind, shape);
  const auto v = static_cast<double>(shape.chunks_per_stage);
  const ScheduleTimes times = simulated(schedule, equal_costs(schedule, f / v, i / v, w / v));
  const Seconds bubble =
      longest_span(times) - static_cast<double>(shape.micro_batches) * (f + i + w);
  CHECK(times.bubble_rate == Approx(bubble / longest_span(times)).margin(1e-12));
  return bubble;
}

TEST_CASE("bubbles in closed form", "[pipeline]") {
  // All exact in binary; W is nowhere the longest, and I never shorter than F where that counts.
  const auto [f, i, w] = GENERATE(table<double, double, double>(
      {{1, 1, 1}, {1, 1.25, 0.75}, {2, 2.5, 1.5}, {1, 1, 0.5}, {3, 3, 2.5}}));
  for (const ScheduleKind kind : schedule_kinds()) {
    for (const PipelineShape& shape : small_shapes(kind)) {
      if (shape.micro_batches < shape.stages) continue;
      INFO(name_of(kind) << " " << text_of(shape) << " F " << f << " I " << i << " W " << w);
      const auto behind = static_cast<double>(shape.stages - 1);
      const auto chunks = static_cast<double>(shape.chunks_per_stage);
      double expected = 0;
      switch (kind) {
        case ScheduleKind::kGPipe:
        case ScheduleKind::k1F1B:
          expected = behind * (f + i + w);
          break;
        case ScheduleKind::kInterleaved:
          expected = behind * (f + i + w) / chunks;
          break;
        case ScheduleKind::kZbH1:
          expected = behind * (f + i - w);
          break;
        case ScheduleKind::kZbV:
          if (shape.micro_batches < 2 * shape.stages) continue;
          expected = behind * (i - w);
          break;
        case ScheduleKind::kDualPipeV:
          expected = behind * (f + i - w) / 2;
          if (i > f) {  // an I that is longer than F makes F and B meet late, with many stages
            CHECK(bubble_of(kind, shape, f, i, w) >= expected - 1e-9);
            continue;
          }
          break;
      }
      CHECK(bubble_of(kind, shape, f, i, w) == Approx(expected).margin(1e-9));
    }
  }
}

TEST_CASE("a makespan in closed form", "[pipeline]") {
  for (const PipelineShape& shape : small_shapes(ScheduleKind::k1F1B)) {
    const auto passes = static_cast<double>(shape.micro_batches + shape.stages - 1);
    for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B}) {
      INFO(name_of(kind) << " " << text_of(shape));
      const PipelineSchedule schedule = made(kind, shape);
      const ScheduleTimes times = simulated(schedule, equal_costs(schedule, 1, 1.5, 0.5));
      CHECK(times.makespan == passes * 3);
      for (std::size_t s = 0; s < schedule.lines.size(); ++s) {
        CHECK(times.busy[s] == static_cast<double>(shape.micro_batches) * 3);
        CHECK(times.idle[s] == static_cast<double>(shape.stages - 1) * 3);
      }
    }
    const PipelineSchedule schedule = made(ScheduleKind::kZbH1, shape);
    const ScheduleTimes times = simulated(schedule, equal_costs(schedule, 1, 1.5, 0.5));
    // With few micro-batches only one W stands in the way (the paper's section 2).
    if (shape.micro_batches <= shape.stages) CHECK(times.makespan == passes * 2.5 + 0.5);
  }
}

TEST_CASE("micro-batches in flight in closed form", "[pipeline]") {
  for (const ScheduleKind kind : schedule_kinds()) {
    for (const PipelineShape& shape : small_shapes(kind)) {
      INFO(name_of(kind) << " " << text_of(shape));
      const InFlight found = in_flight(made(kind, shape));
      const std::int64_t p = shape.stages, m = shape.micro_batches, v = shape.chunks_per_stage;
      REQUIRE(found.of_stage.size() == static_cast<std::size_t>(p));
      for (std::int64_t s = 0; s < p; ++s) {
        std::int64_t expected = 0;  // of chunks
        switch (kind) {
          case ScheduleKind::kGPipe:
            expected = m;
            break;
          case ScheduleKind::k1F1B:
            expected = std::min(p - s, m);
            break;
          case ScheduleKind::kInterleaved:
            expected = std::min(2 * (p - 1 - s) + (v - 1) * p + 1, m * v);
            break;
          case ScheduleKind::kZbH1:
            expected = std::min(p, m);
            break;
          case ScheduleKind::kZbV:
            expected = m >= 2 * p - 1 ? 2 * p : found.of_stage[static_cast<std::size_t>(s)];
            CHECK(found.of_stage[static_cast<std::size_t>(s)] <= 2 * p);
            break;
          case ScheduleKind::kDualPipeV:
            expected = 2 * p + 1;
            break;
        }
        CHECK(found.of_stage[static_cast<std::size_t>(s)] == expected);
      }
      const std::int64_t most = *std::max_element(found.of_chunk.begin(), found.of_chunk.end());
      CHECK(most <= m);
      CHECK(most <= *std::max_element(found.of_stage.begin(), found.of_stage.end()));
    }
  }
}

TEST_CASE("micro-batches in flight of a mixed line", "[pipeline]") {
  const auto lines = parse_schedule("0F0,0F1,0I0,0F2,0W0,0B1,0I2,0W2\n1F0,1B0,1FB1,1FB2\n", {}, "");
  REQUIRE(lines.ok());
  const PipelineSchedule schedule = *schedule_of_lines(*lines);
  REQUIRE(why_not(schedule) == "");
  CHECK(in_flight(schedule).of_chunk == std::vector<std::int64_t>{3, 1});
  CHECK(in_flight(schedule).of_stage == std::vector<std::int64_t>{3, 1});
}

TEST_CASE("forward passes alone", "[pipeline]") {
  for (const ScheduleKind kind : schedule_kinds()) {
    for (const PipelineShape& shape : small_shapes(kind)) {
      const PipelineSchedule trained = made(kind, shape);
      const PipelineSchedule schedule = forward_only(trained);
      INFO(name_of(kind) << " " << text_of(shape));
      REQUIRE(why_not(schedule) == "");
      CHECK(is_forward_only(schedule));
      CHECK(!is_forward_only(trained));
      const InFlight flying = in_flight(schedule);
      CHECK(*std::max_element(flying.of_stage.begin(), flying.of_stage.end()) == 1);
      if (shape.chunks_per_stage > 1) continue;
      // A micro-batch goes through all stages, and the others follow it.
      const ScheduleTimes times = simulated(schedule, equal_costs(schedule, 2, 5, 7));
      CHECK(times.makespan == 2 * static_cast<double>(shape.micro_batches + shape.stages - 1));
      CHECK(times.bubble_rate == 0);
    }
  }
  // One that is missing, a circle, and one backward pass that is there.
  PipelineSchedule schedule = forward_only(made(ScheduleKind::k1F1B, {2, 1, 2}));
  schedule.lines[1].pop_back();
  CHECK(why_not(schedule) == "line 2: 1F1 stands nowhere; expected exactly once");
  schedule.lines[1].push_back({1, StepPhase::kForward, 1});
  std::swap(schedule.lines[1][0], schedule.lines[1][1]);
  CHECK(why_not(schedule) == "");
  schedule.lines[0].push_back({0, StepPhase::kBackward, 0});
  CHECK_THAT(why_not(schedule), Contains("0B1 stands nowhere"));
}

TEST_CASE("what is refused, and what the message says", "[pipeline]") {
  const auto refusal = [](const std::string& text) {
    const auto lines = parse_schedule(text, {}, "text");
    REQUIRE(lines.ok());
    const auto schedule = schedule_of_lines(*lines);
    return schedule.ok() ? why_not(*schedule) : schedule.error().message;
  };
  CHECK(refusal("0F0,0B0\n1F0,1B0") == "");
  CHECK(refusal("0F0,0B0,0F1,0B1\n1F0,1B0,1F1") ==
        "line 2: 1B1 stands nowhere, nor I and W in its place; expected exactly once");
  CHECK(refusal("0F0,0B0,0B1\n1F0,1B0,1F1,1B1") ==
        "line 1: 0F1 stands nowhere; expected exactly once");
  CHECK(refusal("0F0,0I0\n1F0,1I0,1W0") ==
        "line 1: 0W0 stands nowhere, but its I does; expected exactly once");
  CHECK(refusal("0F0,0W0\n1F0,1I0,1W0") ==
        "line 1: 0B0 stands nowhere, nor I, to which its W belongs; expected exactly once");
  CHECK(refusal("0F0,0B0,0B0\n1F0,1B0") == "line 1: 0B0 stands twice; expected exactly once");
  CHECK(refusal("0F0,0FB0,0B0\n1F0,1B0") ==
        "line 1: 0FB0 stands beside 0F0, which is the same pass; expected one of them");
  CHECK(refusal("0B0,0F0\n1F0,1B0") == "line 1: 0B0 stands before 0F0, which it needs");
  CHECK(refusal("0F0,0W0,0I0\n1F0,1B0") == "line 1: 0W0 stands before 0I0, which it needs");
  CHECK(refusal("0F0,0FB1,0B0\n1F0,1B0,1F1,1B1") ==
        "lines wait for each other in a circle: line 1 is at 0FB1, which needs 1B1 of line 2; line "
        "2 is at 1F1, which needs 0FB1 of line 1");
  CHECK(refusal("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1") ==
        "lines wait for each other in a circle: line 1 is at 0B0, which needs 1B0 of line 2; line "
        "2 is at 1F1, which needs 0F1 of line 1");
  CHECK(refusal("0F0,0U,0B0\n1F0,1B0") == "line 1: 0U stands before 0B0, which it needs");
  CHECK(refusal("0F0,0B0,0U,0R\n1F0,1B0") == "line 1: 0U stands before 0R, which it needs");
  CHECK(refusal("0F0,0B0,0U\n1F0,1B0,1U,1R") == "line 2: 1U stands before 1R, which it needs");
  CHECK(refusal("0F0,0B0,0R,0R\n1F0,1B0") == "line 1: 0R stands twice; expected exactly once");
  // Chunk 0's update needs chunk 1's R, which stands behind it.
  CHECK(refusal("0F0,1F0,1B0,0B0,0U,1R") ==
        "lines wait for each other in a circle: line 1 is at 0U, which needs 1R of line 1");
  CHECK(refusal("0F0,0B0,1F0\n1B0") == "line 2: 1B0 is of a chunk that has actions in line 1 too");
  CHECK(refusal("0F0,0B0\n2F0,2B0") ==
        "line 2 has chunk 2, no line has chunk 1; chunks are counted from 0");

  PipelineSchedule schedule = made(ScheduleKind::k1F1B, {2, 1, 2});
  schedule.lines[0][0].chunk = 1;
  CHECK(why_not(schedule) ==
        "line 1: 1F0 stands in the line of another stage; chunk 1 is on stage 1, line 2");
  schedule.lines[0][0] = {0, StepPhase::kForward, 2};
  CHECK(why_not(schedule) == "line 1: 0F2: expected a micro-batch from 0 to 1");
  schedule.lines[0][0] = {2, StepPhase::kForward, 0};
  CHECK(why_not(schedule) == "line 1: 2F0: expected a chunk from 0 to 1");
  schedule.lines[0][0] = {0, StepPhase::kUpdate, 0};
  CHECK(why_not(schedule) == "line 1: 0U0: expected no micro-batch: R and U run once");
  schedule.lines.pop_back();
  CHECK(why_not(schedule) == "chunk 1 is on stage 1; expected 0 to 0, as there are 1 lines");
  schedule.micro_batches = 0;
  CHECK(why_not(schedule) == "expected at least one micro-batch");
}

TEST_CASE("a large schedule", "[pipeline]") {
  const PipelineSchedule schedule = made(ScheduleKind::kZbV, {64, 2, 2048});
  const ScheduleTimes times = simulated(schedule, equal_costs(schedule, 1, 1, 1));
  CHECK(longest_span(times) == 2048 * 6);
  CHECK(times.bubble_rate == 0);
}

// docs/pipelines.md shows what is found here.
TEST_CASE("the table of the page", "[pipeline]") {
  std::ifstream file(std::string(AUTOPAR_SOURCE) + "/docs/pipelines.md");
  std::stringstream page;
  page << file.rdbuf();
  for (const ScheduleKind kind : schedule_kinds()) {
    std::string row = std::string("| `") + name_of(kind) + "`";
    for (const auto& [stages, micro_batches] : {std::pair(4, 8), std::pair(8, 64)}) {
      const bool one = make_schedule(kind, {stages, 1, micro_batches}).ok();
      const PipelineShape shape{stages, one ? 1 : 2, micro_batches};
      const PipelineSchedule schedule = made(kind, shape);
      const Seconds unit = 1.0 / static_cast<double>(shape.chunks_per_stage);
      const ScheduleTimes times = simulated(schedule, equal_costs(schedule, unit, unit, unit));
      char cells[200];
      std::snprintf(cells, sizeof cells, " | %g | %.1f %%", longest_span(times),
                    100 * times.bubble_rate);
      row += cells;
      std::int64_t most = 0;
      for (const std::int64_t held : in_flight(schedule).of_stage) most = std::max(most, held);
      std::snprintf(cells, sizeof cells, " | %g", static_cast<double>(most) * unit);
      row += cells;
    }
    CHECK_THAT(page.str(), Contains(row + " |\n"));
  }
}

}  // namespace autopar::pipeline_test
