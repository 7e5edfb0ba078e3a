#include "autopar/mindspore.hpp"

namespace autopar {

namespace {

constexpr int kMostSolves = 500;
constexpr double kEqual = 1e-12;  // relative

}  // namespace

std::optional<Solution> first_of_equals(const Problem& problem, const std::vector<int>& nodes,
                                        Solution optimal, SolveOptions options) {
  int earlier = 0;
  for (int node : nodes) earlier += optimal.choices[static_cast<std::size_t>(node)];
  if (earlier > kMostSolves) return {};
  options.cutoff = kInfinity;
  options.progress = nullptr;
  std::vector<std::vector<int>> allowed(problem.nodes.size());
  for (int node : nodes) {
    const auto n = static_cast<std::size_t>(node);
    for (int choice = 0; choice < optimal.choices[n]; ++choice) {
      if (problem.nodes[n].cost[static_cast<std::size_t>(choice)] > optimal.cost) continue;
      allowed[n] = {choice};
      Solution found = solve_restricted(problem, allowed, options);
      if (!found.feasible || found.cost > optimal.cost * (1 + kEqual)) continue;
      optimal.choices = std::move(found.choices);
      optimal.peak_use = found.peak_use;
      optimal.cost = found.cost;
      break;
    }
    allowed[n] = {optimal.choices[n]};
  }
  return optimal;
}

}  // namespace autopar
