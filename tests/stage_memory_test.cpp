// What chunks of one stage hold together.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include "planning/pipelines/stage_memory.hpp"

namespace autopar::stage_memory_test {

TEST_CASE("one chunk of a stage is at its peak while the others rest", "[pipeline]") {
  CHECK(stage_memory({}) == 0);
  CHECK(stage_memory({{10, 4}}) == 10);
  // 4 and 6 in any case, and 6 or 1 beside.
  CHECK(stage_memory({{10, 4}, {7, 6}}) == 16);
  // Where one takes more than all others, it is the one that counts, whatever its place.
  CHECK(stage_memory({{7, 6}, {5, 5}, {30, 4}}) == 41);
}

TEST_CASE("chunks are listed by their stages", "[pipeline]") {
  PipelineSchedule schedule;
  schedule.stage_of_chunk = {0, 1, 1, 0};
  const auto stages = chunks_of_stages(schedule);
  CHECK(stages.at(0) == std::vector<std::size_t>{0, 3});
  CHECK(stages.at(1) == std::vector<std::size_t>{1, 2});
}

}  // namespace autopar::stage_memory_test
