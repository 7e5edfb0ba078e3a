// Patient searches (`autopar solve`): the same answers as others on small problems.
#include "problem_checks.hpp"

namespace autopar::patient_test {

using namespace testing;

namespace {

Recipe large_recipe(unsigned seed) {
  Recipe recipe;
  recipe.topology = seed % 2 == 0 ? Topology::kGrid : Topology::kTree;
  recipe.nodes = 60;
  recipe.uses = true;
  recipe.edge_uses = seed % 3 == 0;
  recipe.tightness = 0.9;
  return recipe;
}

}  // namespace

TEST_CASE("patient: as good as the exhaustive search on small problems", "[patient]") {
  int feasible = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Generator generator(seed + 5000);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = 1 + generator.below(8);
    recipe.forbidden = generator.chance(0.5);
    recipe.uses = generator.chance(0.7);
    recipe.edge_uses = generator.chance(0.5);
    recipe.tightness = generator.unit();
    const Problem problem = generator.make(recipe);
    const Solution truth = solve_exhaustive(problem).value();
    SolveOptions options;
    options.patient = true;
    options.time_limit = 1000;
    const Solution found = solve_dp(problem, options);
    check_claims(problem, found);
    REQUIRE(found.feasible == truth.feasible);
    if (!truth.feasible) continue;
    ++feasible;
    CHECK(close(found.cost, truth.cost));
    CHECK(found.lower_bound == found.cost);
    CHECK_FALSE(found.interrupted);
  }
  CHECK(feasible > 100);
}

// Whoever stops a search is told so, wherever it was: without that, no baseline is asked for in
// place of what it had no time to find.
TEST_CASE("an interruption is told, wherever it strikes", "[patient]") {
  int told = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    Generator generator(seed + 9000);
    Recipe recipe = large_recipe(seed);
    recipe.nodes = 30;
    Problem problem = generator.make(recipe);
    problem.use_limit = 0;  // nothing fits: then the least that would is looked for
    const Solution whole = solve_dp(problem, {});
    if (whole.feasible || !whole.least_peak_proven) continue;
    for (int stopped_at = 1; stopped_at < 40; ++stopped_at) {
      INFO("seed " << seed << ", stopped at report " << stopped_at);
      std::atomic<bool> stop = false;
      int reports = 0;
      SolveOptions options;
      options.stop = &stop;
      options.progress = [&](const SolveProgress&) { stop = ++reports == stopped_at || stop; };
      const Solution found = solve_dp(problem, options);
      if (!stop) break;
      const bool cut_short = !found.least_peak_proven;
      CHECK((!cut_short || found.interrupted));
      told += cut_short;
    }
  }
  CHECK(told > 0);
}

}  // namespace autopar::patient_test
