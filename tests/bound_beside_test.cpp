// What is said of a bound beside a plan, and why there is no plan.
#include "search/bound_beside.hpp"

#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include "autopar/report.hpp"
#include "report/contradiction.hpp"
#include "search/no_plan.hpp"

namespace autopar::bound_beside_test {
namespace {

TEST_CASE("a bound above the plan by rounding alone is the plan's time") {
  CHECK(bound_beside(1.0, 2.0) == 1.0);
  CHECK(bound_beside(2.0 * (1 + 1e-10), 2.0) == 2.0);
  CHECK(bound_beside(2.1, 2.0) == 2.1);
  CHECK(bound_of_file(2.0 * (1 + 1e-10), 2.0) == 2.0);
  CHECK(bound_of_file(2.1, 2.0) == 0);
}

struct Asked {
  Graph graph;
  GraphRules rules;
  Cluster cluster;
  SearchRequest request{graph, rules, cluster};
};

SearchOutcome outcome_with(Seconds bound, Seconds plan) {
  SearchOutcome outcome;
  outcome.searcher = "dp";
  outcome.cost.step.emplace();
  outcome.cost.step->seconds = plan;
  outcome.lower_bound = bound;
  return outcome;
}

TEST_CASE("a report says that a bound is above the plan, and proves nothing by it") {
  const Asked asked;
  const Report right = build_report(asked.request, outcome_with(2, 2));
  CHECK(right.warnings.empty());
  CHECK(right.proven);
  const Report wrong = build_report(asked.request, outcome_with(2.1, 2));
  REQUIRE(wrong.warnings.size() == 1);
  CHECK(wrong.warnings[0].find("2.100 s") != std::string::npos);
  CHECK_FALSE(wrong.proven);
  CHECK(to_table(wrong).find("BELOW ITS BOUND of 2.100 s") != std::string::npos);
  CHECK(contradiction(2 * (1 + 1e-10), 2).empty());
}

TEST_CASE("memory is no reason where there is no plan without a limit either") {
  Asked asked;
  asked.request.searcher = "data_parallel";
  Tightest tightest;
  tightest.meshes = 2;
  tightest.without_any = 1;
  CHECK(no_plan(asked.request, tightest, false).message.find("no plan fits into") == 0);
  tightest.without_any = 2;
  const std::string told = no_plan(asked.request, tightest, false).message;
  CHECK(told.find("searcher data_parallel has no plan, however much memory there is") == 0);
}

}  // namespace
}  // namespace autopar::bound_beside_test
