// Plans that are combined part by part, where the work ends early.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include "solve/plans/combine.hpp"

namespace autopar::solver::combine_test {

namespace {

// A cheap variant that uses too much and a dear one that uses nothing, for each of two parts.
Parts two_parts() {
  Parts parts;
  parts.used = {0, 0, 0};
  for (int p = 0; p < 2; ++p) {
    Part part;
    part.nodes = {p};
    part.variants = {{{0}, 0, {{p, p + 2, 10}}}, {{1}, 1, {}}};
    parts.parts.push_back(part);
  }
  return parts;
}

}  // namespace

TEST_CASE("rows that no work was left for have no prices", "[combine]") {
  std::vector<int> rows;
  Budget none;
  none.work_limit = 0;
  const Combination cut = combine(two_parts(), {8, 8, 8}, {}, rows, 10, none);
  CHECK(rows.empty());
  CHECK(cut.prices.empty());

  Budget ample;
  const Combination whole = combine(two_parts(), {8, 8, 8}, {}, rows, 10, ample);
  REQUIRE(whole.variants.size() == 2);
  CHECK(whole.cost == Approx(2));
  // Each variant that uses too much may have 0.8 of a share, and where both do 0.8 together.
  CHECK(whole.value == Approx(1.2));
  CHECK_FALSE(rows.empty());
}

}  // namespace autopar::solver::combine_test
