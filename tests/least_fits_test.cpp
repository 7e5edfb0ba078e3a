// Large problems whose limit is at the edge of what is possible.
#include "problem_checks.hpp"

namespace autopar::least_fits_test {

using namespace testing;

namespace {

constexpr unsigned kSeeds = 6;  // one for each topology

// At one time, with nothing forbidden: each node may use the least that any of its choices does.
double least_use(const Problem& problem) {
  double least = problem.base_use;
  for (const ProblemNode& node : problem.nodes) {
    std::vector<double> sums(node.cost.size(), 0.0);
    for (const NodeUse& use : node.uses) {
      if (use.begin > 0 || use.end <= 0) continue;
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += use.bytes[c];
    }
    least += *std::min_element(sums.begin(), sums.end());
  }
  return least;
}

Problem large_problem(unsigned seed) {
  Generator generator(seed + 70000);
  Recipe recipe;
  constexpr Topology kSparse[] = {Topology::kChain, Topology::kTree,   Topology::kCycle,
                                  Topology::kGrid,  Topology::kSparse, Topology::kIsolated};
  recipe.topology = kSparse[seed % kSeeds];
  recipe.nodes = 200 + generator.below(10);
  recipe.uses = true;
  Problem problem = generator.make(recipe);
  problem.horizon = 1;
  for (ProblemNode& node : problem.nodes) {
    for (NodeUse& use : node.uses) use.begin = 0, use.end = 1;
  }
  return problem;
}

}  // namespace

TEST_CASE("limit: just above the least that is possible, something is found", "[limit]") {
  int found = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    Problem problem = large_problem(seed);
    const double least = least_use(problem);
    for (const double above : {seed % 2 == 0 ? 1e-9 : 0.03}) {
      problem.use_limit = least * (1 + above);
      const Solution solution = solve_dp(problem, {});
      check_claims(problem, solution);
      CHECK(solution.lower_bound < kInfinity);
      found += solution.feasible;
    }
  }
  CHECK(found > static_cast<int>(kSeeds) / 2);
}

TEST_CASE("limit: below the least that is possible, nothing fits, and that is proven", "[limit]") {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    Problem problem = large_problem(seed);
    const double least = least_use(problem);
    for (const double below : {1e-3, 0.2}) {
      problem.use_limit = least * (1 - below);
      SolveOptions options;
      options.least_peak = false;
      const Solution solution = solve_dp(problem, options);
      CHECK_FALSE(solution.feasible);
      CHECK(solution.lower_bound == kInfinity);
      CHECK(solution.end == SolveEnd::kProven);
    }
  }
}

}  // namespace autopar::least_fits_test
