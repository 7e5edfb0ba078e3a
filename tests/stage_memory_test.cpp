// What chunks of one stage hold together.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include "planning/pipelines/stage_memory.hpp"

namespace autopar::stage_memory_test {

StepLine line_of(const std::string& text) {
  return parse_schedule(text + "\n", {}, "line")->front();
}

TEST_CASE("one chunk of a stage has most while the others rest", "[pipeline]") {
  const StepLine line = line_of("0F0,1F0,1B0,0B0");
  CHECK(stage_memory({}, {}) == 0);
  CHECK(stage_memory(line_of("0F0,0B0"), {{.stored = 4, .kept = 2, .forward = 1, .backward = 6}}) ==
        12);
  // 4 and 6 in any case, and 6 or 1 beside.
  CHECK(stage_memory(line, {{.chunk = 0, .stored = 4, .forward = 6},
                            {.chunk = 1, .stored = 6, .backward = 1}}) == 16);
  // What is kept of the one counts while the other runs.
  CHECK(stage_memory(line, {{.chunk = 0, .stored = 1, .kept = 10},
                            {.chunk = 1, .stored = 2, .kept = 20, .backward = 300}}) == 333);
  // An update begins when nothing is kept.
  CHECK(stage_memory(line_of("0F0,0B0,0U"), {{.stored = 4, .kept = 5, .update = 3}}) == 9);
  CHECK(stage_memory(line_of("0F0,0B0,0U"), {{.stored = 4, .kept = 5, .update = 7}}) == 11);
}

TEST_CASE("micro-batches in flight are counted as the line has them", "[pipeline]") {
  const ChunkBytes chunk{.kept = 10, .waiting = 7, .backward = 1, .weights = 2};
  CHECK(stage_memory(line_of("0F0,0B0,0F1,0B1"), {chunk}) == 11);
  CHECK(stage_memory(line_of("0F0,0F1,0B0,0B1"), {chunk}) == 21);
  CHECK(stage_memory(line_of("0F0,0I0,0W0,0F1,0I1,0W1"), {chunk}) == 11);
  // Two that wait for W, and one that is kept.
  CHECK(stage_memory(line_of("0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2"), {chunk}) == 25);
  ChunkBytes more = chunk;
  more.waiting = 30;
  CHECK(stage_memory(line_of("0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2"), {more}) == 92);
  CHECK(stage_memory(line_of("0FB0,0FB1"), {chunk}) == 11);
  // F0 110, F1 220, I0 120, F2 230, ...
  CHECK(stage_memory(line_of("0F0,0F1,0I0,0F2,0W0,0B1,0I2,0W2"), {{.kept = 110, .waiting = 10}}) ==
        230);
  CHECK(stage_memory(line_of("0F0,0B0,0FB1,0FB2"), {{.kept = 12, .waiting = 5}}) == 12);
  // No two chunks have most at one time.
  CHECK(stage_memory(line_of("0F0,0F1,0B0,0B1,1F0,1F1,1B0,1B1"),
                     {{.chunk = 0, .kept = 10}, {.chunk = 1, .kept = 9}}) == 20);
}

TEST_CASE("passes of a chunk are joined where their first part stood", "[pipeline]") {
  PipelineSchedule schedule =
      *schedule_of_lines({line_of("0F0,0F1,0I0,0I1,0W0,0W1"), line_of("1F0,1I0,1F1,1I1,1W0,1W1")});
  CHECK(is_apart(schedule, 0));
  join_backward(schedule, [](std::size_t chunk) { return chunk == 0; });
  CHECK(schedule_text(schedule.lines) == "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
  CHECK(!is_apart(schedule, 0));
  CHECK(is_apart(schedule, 1));
}

TEST_CASE("what is left of a room is for what is held ahead", "[pipeline]") {
  const StepLine line = line_of("0F0,1F0,1B0,0B0");
  const std::vector<ChunkBytes> chunks = {{.chunk = 0, .stored = 4, .forward = 6},
                                          {.chunk = 1, .stored = 6, .backward = 1}};
  CHECK(limits_of_chunks(line, chunks, 16) == std::vector<Bytes>{10, 12});
  CHECK(limits_of_chunks(line, chunks, 20) == std::vector<Bytes>{12, 14});
  CHECK(limits_of_chunks(line, chunks, 3) == std::vector<Bytes>{10, 12});
}

TEST_CASE("chunks are listed by their stages", "[pipeline]") {
  PipelineSchedule schedule;
  schedule.stage_of_chunk = {0, 1, 1, 0};
  const auto stages = chunks_of_stages(schedule);
  CHECK(stages.at(0) == std::vector<std::size_t>{0, 3});
  CHECK(stages.at(1) == std::vector<std::size_t>{1, 2});
}

}  // namespace autopar::stage_memory_test
