// in_parallel() on few and many threads.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/parallel.hpp"

namespace autopar::parallel_test {
namespace {

TEST_CASE("each piece of work is done once, on any number of threads") {
  for (const int threads : {0, 1, 2, 5}) {
    for (const std::size_t count : {0, 1, 2, 7}) {
      std::vector<int> done(count, 0);
      in_parallel(threads, count, [&](std::size_t i) { ++done[i]; });
      REQUIRE(done == std::vector<int>(count, 1));
    }
  }
}

// A caller that waits leaves its place to another thread, and goes on beside it then.
TEST_CASE("calls within calls share the threads") {
  std::atomic<int> now = 0, most = 0;
  std::vector<int> done(12, 0);
  in_parallel(3, 4, [&](std::size_t i) {
    in_parallel(3, 3, [&](std::size_t j) {
      const int running = ++now;
      for (int before = most; before < running && !most.compare_exchange_weak(before, running);) {
      }
      ++done[3 * i + j];
      --now;
    });
  });
  REQUIRE(done == std::vector<int>(12, 1));
  REQUIRE(most >= 1);
  REQUIRE(most <= 6);
}

TEST_CASE("all work is done, and the first error told") {
  for (const int threads : {1, 3}) {
    std::vector<int> done(5, 0);
    const Status end = try_in_parallel(threads, done.size(), [&](std::size_t i) -> Status {
      ++done[i];
      if (i == 1 || i == 3) return input_error(std::to_string(i));
      return Ok{};
    });
    REQUIRE(done == std::vector<int>(5, 1));
    REQUIRE(!end.ok());
    REQUIRE(end.error().message == "1");
    REQUIRE(try_in_parallel(threads, 2, [](std::size_t) { return Status(Ok{}); }).ok());
  }
}

TEST_CASE("what work throws comes out") {
  for (const int threads : {1, 3}) {
    REQUIRE_THROWS_AS(in_parallel(threads, 4,
                                  [](std::size_t i) {
                                    if (i == 2) throw std::runtime_error("of this piece");
                                  }),
                      std::runtime_error);
  }
}

}  // namespace
}  // namespace autopar::parallel_test
