// in_parallel() on few and many threads.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <atomic>
#include <stdexcept>
#include <vector>

#include "support/parallel.hpp"

namespace autopar {
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
}  // namespace autopar
