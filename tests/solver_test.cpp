// The search on bare problems: dp against the exhaustive search, bounds against costs.
#include "problem_checks.hpp"

namespace autopar::testing {

TEST_CASE("dp equals the exhaustive search without a limit", "[solver]") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Generator generator(seed);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = 1 + generator.below(7);
    recipe.most_choices = 2 + generator.below(4);
    recipe.parallel = generator.chance(0.3);
    recipe.forbidden = generator.chance(0.4);
    recipe.ties = generator.chance(0.4);
    INFO("seed " << seed);
    check_against_exhaustive(generator.make(recipe));
  }
}

TEST_CASE("dp equals the exhaustive search under a memory limit", "[solver]") {
  int infeasible = 0, bound_by_memory = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Generator generator(seed + 100000);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = 1 + generator.below(7);
    recipe.most_choices = 2 + generator.below(4);
    recipe.parallel = generator.chance(0.3);
    recipe.forbidden = generator.chance(0.3);
    recipe.ties = generator.chance(0.4);
    recipe.uses = true;
    recipe.edge_uses = generator.chance(0.5);
    recipe.tightness = 0.7 * generator.unit();
    INFO("seed " << seed);
    const Problem problem = generator.make(recipe);
    check_against_exhaustive(problem);
    const Solution found = solve_dp(problem, {});
    infeasible += found.feasible ? 0 : 1;
    bound_by_memory += found.lower_bound > found.unlimited_lower_bound * (1 + 1e-9) ? 1 : 0;
  }
  // The family is worth something only if both happen.
  CHECK(infeasible > 100);
  CHECK(bound_by_memory > 500);
}

TEST_CASE("dp equals the exhaustive search where memory is scarce everywhere", "[solver]") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Generator generator(seed + 200000);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = 7 + generator.below(3);
    recipe.most_choices = 4;
    recipe.parallel = generator.chance(0.2);
    recipe.forbidden = generator.chance(0.2);
    recipe.uses = true;
    recipe.edge_uses = generator.chance(0.5);
    recipe.tightness = 0.1 + 0.4 * generator.unit();
    INFO("seed " << seed);
    check_against_exhaustive(generator.make(recipe));
  }
}

namespace {

// Two answers to the same question need not be proven, but they must not contradict each other.
void check_compatible(const Solution& one, const Solution& other) {
  CHECK(one.lower_bound <= other.cost * (1 + 1e-9));
  CHECK(other.lower_bound <= one.cost * (1 + 1e-9));
}

}  // namespace

TEST_CASE("dp on larger problems: claims hold, whatever the order", "[solver]") {
  int proven = 0, solved = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    Generator generator(seed + 300000);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = recipe.topology == Topology::kClique || recipe.topology == Topology::kSparse
                       ? 10 + generator.below(8)
                       : 20 + generator.below(60);
    recipe.most_choices = 2 + generator.below(6);
    recipe.parallel = generator.chance(0.3);
    recipe.forbidden = generator.chance(0.2);
    recipe.uses = generator.chance(0.6);
    recipe.edge_uses = generator.chance(0.5);
    recipe.tightness = 0.2 + 0.5 * generator.unit();
    INFO("seed " << seed);
    const Problem problem = generator.make(recipe);
    const Solution found = solve_dp(problem, {});
    check_claims(problem, found);
    const Solution moved = solve_dp(shuffled(problem, seed), {});
    check_compatible(found, moved);
    const Solution doubled = solve_dp(scaled(problem, 2), {});
    CHECK(doubled.choices == found.choices);
    CHECK(doubled.cost == 2 * found.cost);
    solved += found.feasible ? 1 : 0;
    proven += found.feasible && found.lower_bound == found.cost ? 1 : 0;
  }
  CHECK(solved > 90);
  CHECK(proven >= solved - 5);
}

}  // namespace autopar::testing
