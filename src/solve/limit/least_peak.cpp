#include "solve/limit/least_peak.hpp"

#include <algorithm>
#include <cmath>

#include "solve/limit/within_limit.hpp"
#include "solve/without_limit.hpp"

namespace autopar::solver {
namespace {

// Costs do not matter, only what is forbidden.
Problem without_costs(const Problem& problem) {
  Problem result = problem;
  for (ProblemNode& node : result.nodes) {
    for (double& cost : node.cost) cost = cost < kInfinity ? 0 : kInfinity;
  }
  for (ProblemEdge& edge : result.edges) {
    if (edge.cost_table < 0) continue;
    CostTable table = problem.tables[static_cast<std::size_t>(edge.cost_table)];
    bool any = false;
    for (double& value : table.values) {
      any = any || value == kInfinity;
      value = value < kInfinity ? 0 : kInfinity;
    }
    edge.cost_table = any ? result.add_table(std::move(table)) : -1;
  }
  return result;
}

bool whole(double value) { return value == std::floor(value); }

bool whole_uses(const Problem& problem) {
  bool result = whole(problem.base_use);
  for (const ProblemNode& node : problem.nodes) {
    for (const NodeUse& use : node.uses) {
      result = result && std::all_of(use.bytes.begin(), use.bytes.end(), whole);
    }
  }
  for (const ProblemEdge& edge : problem.edges) {
    for (const EdgeUse& use : edge.uses) {
      const Vector& values = problem.tables[static_cast<std::size_t>(use.table)].values;
      result = result && std::all_of(values.begin(), values.end(), whole);
    }
  }
  return result;
}

// Anything positive: a labelling costs nothing, so a bound above it means that none fits.
constexpr double kNothingFits = 1e-3;

// Looks for anything within the flat problem's limit; `known` are choices that are not.
void ask(Race& race, const std::vector<int>& known) {
  if (race.problem.use_limit < kInfinity) return search_within_limit(race, known);
  FreeSearch(race).close();
}

}  // namespace

bool find_least_peak(Race& race, double enough) {
  const Problem& problem = race.problem;
  Problem flat = without_costs(problem);
  const bool integers = whole_uses(problem);
  double below = problem.base_use;  // nothing fits less than this
  for (int step = 0; step < 200 && !race.budget.over(); ++step) {
    const double peak = race.least_peak;
    if (peak <= enough) return false;
    // Only limits that would be an improvement; the last question is for the least of those.
    const double best_to_ask = integers ? peak - 1 : peak * (1 - 1e-9);
    if (peak == kInfinity) {
      flat.use_limit = kInfinity;
    } else if (best_to_ask < below) {
      return true;
    } else {
      const double middle = below + (peak - below) / 2;
      flat.use_limit = std::min(best_to_ask, integers ? std::floor(middle) : middle);
    }
    Race asked(flat, race.budget, kNothingFits);
    ask(asked, race.least_peak_choices);
    if (asked.feasible()) {
      race.offer(asked.choices);
      if (!(race.least_peak < peak)) return false;  // rounding of uses that are not whole
    } else if (asked.bound >= kNothingFits) {
      if (flat.use_limit == kInfinity) return false;  // no choices at all without forbidden ones
      below = integers ? flat.use_limit + 1 : std::nextafter(flat.use_limit, kInfinity);
    } else {
      return false;
    }
  }
  return false;
}

}  // namespace autopar::solver
