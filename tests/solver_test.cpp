// The search on bare problems: dp against the exhaustive search, bounds against costs.
#include "cases.hpp"
#include "problem_checks.hpp"

namespace autopar::solver_test {

using namespace testing;

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

namespace {

// Layers that each are best split one of two ways: as the parameters are kept whole (cheap, large)
// or in parts (dear, small). Neighbours that are split differently cost something, and how much the
// layers differ is drawn. The cheapest plan within a limit keeps some layers whole: no price of
// memory makes a plan of its own out of it.
Problem layers_to_mix(unsigned seed, int layers, bool irregular) {
  Generator draw(seed);
  Problem problem;
  problem.horizon = 4 * layers;
  int stream = -1;
  std::vector<int> made;
  const auto add = [&](double whole, double parts, double bytes, int time) {
    ProblemNode node;
    node.cost = {whole, parts, 3 * parts};
    node.uses.push_back({0, problem.horizon, {bytes, bytes / 8, bytes / 16}});
    node.uses.push_back({time, time + 2, {bytes / 4, bytes / 8, bytes / 8}});
    problem.nodes.push_back(node);
    return static_cast<int>(problem.nodes.size()) - 1;
  };
  const int table = problem.add_table({3, 3, {0, .03, .05, .02, 0, .03, .05, .03, 0}});
  for (int l = 0; l < layers; ++l) {
    for (int part = 0; part < 3; ++part) {
      const double size = irregular ? 0.5 + draw.unit() : 1.0;
      const int n = add(size, 1.4 * size, std::floor(800 * size), 4 * l + part);
      if (stream >= 0) problem.edges.push_back({stream, n, table, {}});
      if (part == 2) problem.edges.push_back({n - 2, n, table, {}});
      if (irregular && draw.chance(0.1) && made.size() > 8) {
        problem.edges.push_back({made[made.size() - 8], n, table, {}});
      }
      made.push_back(n);
      stream = n;
    }
  }
  return problem;
}

}  // namespace

TEST_CASE("dp ends well where the work is up at any time", "[solver]") {
  for (unsigned seed = 0; seed < cases(60u); ++seed) {
    Generator generator(seed + 400000);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = 60 + generator.below(60);
    recipe.most_choices = 8;
    recipe.uses = true;
    recipe.tightness = 0.2 + 0.5 * generator.unit();
    const Problem problem = generator.make(recipe);
    SolveOptions all;
    all.effort = 0.05;
    const Solution best = solve_dp(problem, all);
    for (const double effort : {0.0, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3}) {
      INFO("seed " << seed << ", effort " << effort);
      SolveOptions options;
      options.effort = effort;
      const Solution found = solve_dp(problem, options);
      if (best.feasible) CHECK(found.lower_bound <= best.cost * (1 + 1e-9));
      if (!found.feasible) continue;
      CHECK(best.lower_bound <= found.cost * (1 + 1e-9));
      CHECK(evaluate(problem, found.choices).peak_use <= problem.use_limit);
    }
  }
}

TEST_CASE("dp mixes plans under a memory limit", "[solver]") {
  for (unsigned seed = 0; seed < cases(4u); ++seed) {
    Problem problem = layers_to_mix(seed, 8 + 4 * static_cast<int>(seed), seed % 2 == 1);
    const std::vector<int> whole(problem.nodes.size(), 0), parts(problem.nodes.size(), 1);
    const double most = evaluate(problem, whole).peak_use;
    const double least = evaluate(problem, parts).peak_use;
    double before = kInfinity;
    for (const double part : {0.2, 0.5, 0.8}) {
      INFO("seed " << seed << " part " << part);
      problem.use_limit = std::floor(least + part * (most - least));
      SolveOptions options;
      options.gap = 0.003;
      const Solution found = solve_dp(problem, options);
      check_claims(problem, found);
      REQUIRE(found.feasible);
      CHECK(found.gap() < 0.0075);
      CHECK(found.cost < before);  // more room, less cost
      before = found.cost;
    }
  }
}

}  // namespace autopar::solver_test
