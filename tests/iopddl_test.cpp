// Bare search problems in JSON: their times may be any numbers, and only their order counts.
#include "autopar/iopddl.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace autopar::iopddl_test {

namespace {

using Intervals = std::vector<std::vector<int>>;

// Each node has two choices, of which the cheaper one uses more: of two nodes that live at once one
// has to take the other, and three never fit.
IopddlProblem problem_with(const Intervals& intervals) {
  std::string lists[3];
  for (const auto& interval : intervals) {
    const std::string comma = lists[0].empty() ? "" : ", ";
    lists[0] +=
        comma + "[" + std::to_string(interval[0]) + ", " + std::to_string(interval[1]) + "]";
    lists[1] += comma + "[1, 10]";
    lists[2] += comma + "[5, 4]";
  }
  const Result<IopddlProblem> read =
      parse_iopddl("{\"problem\": {\"name\": \"p\", \"nodes\": {\"intervals\": [" + lists[0] +
                       "], \"costs\": [" + lists[1] + "], \"usages\": [" + lists[2] +
                       "]}, \"edges\": {\"nodes\": [], \"costs\": []}, \"usage_limit\": 9}}",
                   "p.json");
  REQUIRE(read);
  return *read;
}

void check_same(const IopddlProblem& one, const IopddlProblem& other) {
  CHECK(one.problem.horizon == other.problem.horizon);
  REQUIRE(one.problem.nodes.size() == other.problem.nodes.size());
  for (std::size_t n = 0; n < one.problem.nodes.size(); ++n) {
    const auto &uses = one.problem.nodes[n].uses, &others = other.problem.nodes[n].uses;
    REQUIRE(uses.size() == others.size());
    for (std::size_t u = 0; u < uses.size(); ++u) {
      CHECK(uses[u].begin == others[u].begin);
      CHECK(uses[u].end == others[u].end);
      CHECK(uses[u].bytes == others[u].bytes);
    }
  }
}

}  // namespace

// A table over all times up to the largest that the form allows would take 17 GB.
TEST_CASE("times that are far apart are no more times", "[iopddl]") {
  constexpr int kLast = 2147483646;
  const IopddlProblem far = problem_with({{0, 2000000000}, {1999999999, kLast}, {7, 7}});
  REQUIRE(far.problem.horizon == 3);
  CHECK(far.times == std::vector<int>{0, 1999999999, 2000000000});
  check_same(far, problem_with({{0, 2}, {1, 3}, {0, 0}}));
  const Solution found = solve_dp(far.problem, {});
  REQUIRE(found.feasible);
  CHECK(found.cost == 1 + 10 + 1);  // the first two live at once at one time, the third never does
  CHECK(found.peak_use == 9);
}

TEST_CASE("a time of the problem is where the file's next interval begins or ends", "[iopddl]") {
  const IopddlProblem file = problem_with({{30, 70}, {40, 70}, {50, 120}, {110, 140}, {200, 210}});
  CHECK(file.times == std::vector<int>{30, 40, 50, 70, 110, 120, 140, 200});
  CHECK(file.problem.horizon == 8);
  check_same(file, problem_with({{0, 3}, {1, 3}, {2, 5}, {4, 6}, {7, 8}}));
  const Solution found = solve_dp(file.problem, {});
  CHECK_FALSE(found.feasible);  // three live at 50
  CHECK(found.least_peak_use == 12);
  CHECK(file.times.at(static_cast<std::size_t>(found.tightest_time)) == 50);
}

TEST_CASE("a problem in which nothing is ever live has no times", "[iopddl]") {
  const IopddlProblem empty = problem_with({{5, 5}, {9, 3}});
  CHECK(empty.problem.horizon == 0);
  CHECK(empty.times.empty());
  CHECK(solve_dp(empty.problem, {}).cost == 2);
}

}  // namespace autopar::iopddl_test
