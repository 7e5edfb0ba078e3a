// For tests: solutions of bare problems held to what they claim and to the exhaustive search.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "problems.hpp"

namespace autopar::testing {

inline bool close(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

// What a solution says of itself.
inline void check_claims(const Problem& problem, const Solution& solution) {
  if (!solution.feasible) return;
  const Evaluation found = evaluate(problem, solution.choices);
  CHECK(found.cost == solution.cost);
  CHECK(found.peak_use == solution.peak_use);
  CHECK(found.peak_use <= problem.use_limit);
  CHECK(solution.lower_bound <= solution.cost);
  CHECK(solution.unlimited_lower_bound <= solution.cost * (1 + 1e-12));
}

// Returns the exhaustive answer.
inline Solution check_against_exhaustive(const Problem& problem) {
  REQUIRE(verify(problem).ok());
  const Result<Solution> truth = solve_exhaustive(problem);
  REQUIRE(truth.ok());
  const Solution found = solve_dp(problem, {});
  check_claims(problem, found);
  REQUIRE(found.feasible == truth->feasible);
  if (truth->feasible) {
    CHECK(close(found.cost, truth->cost));
    CHECK(found.lower_bound == found.cost);
  } else {
    CHECK(found.lower_bound == kInfinity);
    if (truth->least_peak_proven) {
      CHECK(found.least_peak_proven);
      CHECK(found.least_peak_use == truth->least_peak_use);
    }
  }
  if (truth->unlimited_lower_bound < kInfinity) {
    CHECK(close(found.unlimited_lower_bound, truth->unlimited_lower_bound));
  }
  return *truth;
}

}  // namespace autopar::testing
