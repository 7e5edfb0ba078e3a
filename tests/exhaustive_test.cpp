// The oracle of the other searchers, held to the plainest of all programs; and how far it reaches.
#include "problem_checks.hpp"

namespace autopar::exhaustive_test {

using namespace testing;

namespace {

// Every combination, one after the other.
Solution by_counting(const Problem& problem) {
  Solution solution;
  solution.unlimited_lower_bound = kInfinity;
  std::vector<int> choices(problem.nodes.size(), 0);
  while (true) {
    const Evaluation found = evaluate(problem, choices);
    if (found.cost < kInfinity) {
      solution.unlimited_lower_bound = std::min(solution.unlimited_lower_bound, found.cost);
      solution.least_peak_use = std::min(solution.least_peak_use, found.peak_use);
      if (found.peak_use <= problem.use_limit && found.cost < solution.cost) {
        solution.feasible = true;
        solution.cost = found.cost;
      }
    }
    std::size_t n = 0;
    while (n < choices.size() && ++choices[n] == static_cast<int>(problem.nodes[n].cost.size())) {
      choices[n++] = 0;
    }
    if (n == choices.size()) return solution;
  }
}

}  // namespace

TEST_CASE("the exhaustive search equals counting", "[solver]") {
  int infeasible = 0, bound_by_memory = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    Generator generator(seed + 400000);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = 1 + generator.below(5);
    recipe.most_choices = 2 + generator.below(3);
    recipe.parallel = generator.chance(0.3);
    recipe.forbidden = generator.chance(0.4);
    recipe.ties = generator.chance(0.3);
    recipe.uses = generator.chance(0.7);
    recipe.edge_uses = generator.chance(0.5);
    recipe.tightness = 0.6 * generator.unit();
    INFO("seed " << seed);
    const Problem problem = generator.make(recipe);
    const Solution counted = by_counting(problem);
    const auto found = solve_exhaustive(problem);
    REQUIRE(found.ok());
    check_claims(problem, *found);
    REQUIRE(found->feasible == counted.feasible);
    CHECK(close(found->unlimited_lower_bound, counted.unlimited_lower_bound));
    if (counted.feasible) {
      CHECK(close(found->cost, counted.cost));
      CHECK(found->lower_bound == found->cost);
    } else {
      CHECK(found->lower_bound == kInfinity);
      CHECK(found->least_peak_proven == (counted.least_peak_use < kInfinity));
      CHECK(found->least_peak_use == counted.least_peak_use);
    }
    infeasible += counted.feasible ? 0 : 1;
    bound_by_memory += counted.feasible && !close(counted.cost, counted.unlimited_lower_bound);
  }
  CHECK(infeasible > 50);
  CHECK(bound_by_memory > 100);
}

// Ops with layouts between them, as graphs have them: what is chosen for the ops decides about each
// layout alone, so these are no combinations that anybody has to try.
TEST_CASE("the exhaustive search does not count what follows from the rest", "[solver]") {
  Generator generator(7);
  Recipe recipe;
  recipe.nodes = 11;
  recipe.most_choices = 40;
  recipe.uses = true;
  recipe.tightness = 0.5;
  double combinations = 1;
  const Problem problem = generator.make(recipe);
  for (const ProblemNode& node : problem.nodes) {
    combinations *= static_cast<double>(node.cost.size());
  }
  CHECK(combinations > 1e12);
  check_against_exhaustive(problem);
}

TEST_CASE("the exhaustive search says what it cannot do", "[solver]") {
  Generator generator(11);
  Recipe recipe;
  recipe.nodes = 14;
  recipe.most_choices = 12;
  recipe.topology = Topology::kClique;
  const Problem problem = generator.make(recipe);
  const auto refused = solve_exhaustive(problem, 1000);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("combinations") != std::string::npos);
  CHECK(refused.error().message.find("1e+03 times") != std::string::npos);
}

}  // namespace autopar::exhaustive_test
