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
  if (race.problem.use_limit < kInfinity) return search_within_limit(race, known, 0);
  FreeSearch(race, true).close();
}

}  // namespace

LeastPeak find_least_peak(const Problem& problem, LeastPeak peak, double enough, Budget& budget) {
  Problem flat = without_costs(problem);
  const bool integers = whole_uses(problem);
  double below = problem.base_use;  // nothing fits less than this
  for (int step = 0; step < 200 && !budget.over(); ++step) {
    if (peak.use <= enough) return peak;
    // Only limits that would be an improvement; the last question is for the least of those.
    const double best_to_ask = integers ? peak.use - 1 : peak.use * (1 - 1e-9);
    if (peak.use == kInfinity) {
      flat.use_limit = kInfinity;
    } else if (best_to_ask < below) {
      peak.proven = true;
      return peak;
    } else {
      const double middle = below + (peak.use - below) / 2;
      flat.use_limit = std::min(best_to_ask, integers ? std::floor(middle) : middle);
    }
    Race race(flat, budget, kNothingFits);
    ask(race, peak.choices);
    if (race.feasible()) {
      const Evaluation evaluation = evaluate(problem, race.choices);
      if (!(evaluation.peak_use < peak.use)) return peak;  // rounding of uses that are not whole
      peak.use = evaluation.peak_use;
      peak.time = evaluation.peak_time;
      peak.choices = race.choices;
    } else if (race.bound >= kNothingFits) {
      if (flat.use_limit == kInfinity) return peak;  // no choices at all without forbidden ones
      below = integers ? flat.use_limit + 1 : std::nextafter(flat.use_limit, kInfinity);
    } else {
      return peak;
    }
  }
  return peak;
}

}  // namespace autopar::solver
