// Patient searches (`autopar solve`): the same answers as others on small problems, and what is
// done with time that is left.
#include <thread>

#include "problem_checks.hpp"
#include "solve/limit/least_peak.hpp"
#include "solve/patient/neighbourhood.hpp"

namespace autopar::testing {
namespace {

using namespace solver;

constexpr double kLittleWork = 3e5;

Recipe large_recipe(unsigned seed) {
  Recipe recipe;
  recipe.topology = seed % 2 == 0 ? Topology::kGrid : Topology::kTree;
  recipe.nodes = 60;
  recipe.uses = true;
  recipe.edge_uses = seed % 3 == 0;
  recipe.tightness = 0.9;
  return recipe;
}

// What fits, and is not good.
std::vector<int> feasible_choices(const Problem& problem) {
  LeastPeak peak;
  Budget budget;
  peak = find_least_peak(problem, std::move(peak), problem.use_limit, budget);
  REQUIRE(peak.use <= problem.use_limit);
  return peak.choices;
}

struct Steps {
  std::vector<double> costs;  // of what was reported
  std::vector<int> choices;   // the last of it
  double work = 0;
  bool interrupted = false;
};

Steps improve(const Problem& problem, const std::vector<int>& choices, int threads) {
  Steps steps;
  Budget budget;
  budget.work_limit = kLittleWork;
  // So that a search that counts nothing ends too, some day.
  budget.deadline = Budget::after(60);
  Race race(problem, budget);
  race.offer(choices);
  race.progress = [&](const Race& now) {
    steps.costs.push_back(now.cost);
    steps.choices = now.choices;
  };
  search_neighbourhoods(race, threads);
  steps.work = budget.work;
  steps.interrupted = budget.interrupted;
  return steps;
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

TEST_CASE("neighbourhoods: better and better, as far as the work goes, on any threads",
          "[patient]") {
  for (unsigned seed = 0; seed < 2; ++seed) {
    INFO("seed " << seed);
    Generator generator(seed + 7000);
    const Problem problem = generator.make(large_recipe(seed));
    const std::vector<int> start = feasible_choices(problem);
    const Steps alone = improve(problem, start, 1);
    CHECK_FALSE(alone.interrupted);
    CHECK(alone.work >= kLittleWork);
    double best = evaluate(problem, start).cost;
    for (double cost : alone.costs) {
      CHECK(cost < best);
      best = cost;
    }
    REQUIRE(!alone.costs.empty());
    CHECK(evaluate(problem, alone.choices).peak_use <= problem.use_limit);
    for (int threads : {2, 3}) {
      const Steps shared = improve(problem, start, threads);
      CHECK(shared.costs == alone.costs);
      CHECK(shared.choices == alone.choices);
      CHECK(shared.work == alone.work);
    }
  }
}

TEST_CASE("neighbourhoods: shrink where the work does not suffice", "[patient]") {
  CHECK(next_size(60, false, 1000) < 60);
  CHECK(next_size(60, true, 1000) > 60);
  CHECK(next_size(60, true, 60) == 60);
  CHECK(next_size(8, false, 60) == 8);
  CHECK(next_size(8, false, 3) == 8);  // a problem of three nodes
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

}  // namespace autopar::testing
