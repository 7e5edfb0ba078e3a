// Stages of two chunks, laid there and back, against all ways to cut.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <limits>
#include <numeric>
#include <random>

#include "planning/pipelines/paired_cuts.hpp"

namespace autopar::paired_cuts_test {

namespace {

// The longest stage of the best cuts behind those that are there, by trying all.
Seconds least_of_all(std::size_t stages, std::size_t end, const std::vector<PairedLimit>& limits,
                     std::vector<std::size_t> ends = {0}) {
  const std::size_t chunks = 2 * stages;
  Seconds least = std::numeric_limits<double>::infinity();
  if (ends.size() == chunks) {
    ends.push_back(end);
    least = 0;
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t other = chunks - 1 - s;
      for (const PairedLimit& limit : limits) {
        least = std::max(least, limit.apart + limit.of_chunk(s, ends[s], ends[s + 1]) +
                                    limit.of_chunk(other, ends[other], ends[other + 1]));
      }
    }
    return least;
  }
  for (std::size_t next = ends.back(); next <= end; ++next) {
    ends.push_back(next);
    least = std::min(least, least_of_all(stages, end, limits, ends));
    ends.pop_back();
  }
  return least;
}

}  // namespace

TEST_CASE("the longest stage of pairs of chunks is as short as any cuts make it", "[pipeline]") {
  std::mt19937 random(3);
  int raised = 0;
  for (int round = 0; round < 150; ++round) {
    const std::size_t stages = 1 + random() % 3, end = 2 * stages + random() % 6;
    std::vector<std::vector<Seconds>> until(2, std::vector<Seconds>(end + 1, 0));
    for (auto& sums : until) {
      for (std::size_t p = 1; p <= end; ++p) sums[p] = sums[p - 1] + 1 + random() % 9;
    }
    // The first chunk of a stage waits for what is before it.
    std::vector<PairedLimit> limits(2);
    limits[0].of_chunk = [&, stages](std::size_t chunk, std::size_t from, std::size_t to) {
      return until[0][to] - until[0][from] + (chunk < stages ? until[1][from] / 4 : 0);
    };
    limits[1].apart = static_cast<double>(random() % 20);
    limits[1].of_chunk = [&](std::size_t chunk, std::size_t from, std::size_t to) {
      return (until[1][to] - until[1][from]) / static_cast<double>(1 + chunk);
    };
    const Seconds least = least_of_all(stages, end, limits);
    const Seconds average = until[0][end] / static_cast<double>(stages);
    const Seconds found = longest_of_pairs(stages, end, average, limits);
    CAPTURE(round, stages, end, average);
    CHECK(found <= std::max(least, average) * (1 + 1e-12));
    CHECK(found >= std::max(least, average) * (1 - 2 * kPairedStep));
    raised += found > average * 1.05;
  }
  CHECK(raised > 50);
}

}  // namespace autopar::paired_cuts_test
