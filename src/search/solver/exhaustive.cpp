// The gold standard: every combination, with nothing clever that could be wrong.
#include <cmath>
#include <cstdio>
#include <utility>

#include "autopar/problem.hpp"

namespace autopar {
namespace {

// Walks all combinations, keeping the cost and the uses over time of the choices made so far.
class Enumeration {
 public:
  explicit Enumeration(const Problem& problem)
      : problem_(problem),
        use_(static_cast<std::size_t>(problem.horizon), problem.base_use),
        closed_edges_(problem.nodes.size()),
        choices_(problem.nodes.size(), 0) {
    for (const ProblemEdge& edge : problem.edges) {
      closed_edges_[static_cast<std::size_t>(std::max(edge.from, edge.to))].push_back(&edge);
    }
  }

  Solution run() {
    visit(0, 0.0);
    if (best_.feasible) {
      const Evaluation found = evaluate(problem_, best_.choices);
      best_.cost = found.cost;
      best_.peak_use = found.peak_use;
    }
    best_.lower_bound = best_.cost;
    best_.unlimited_lower_bound = unlimited_;
    best_.least_peak_proven = best_.least_peak_use < kInfinity;
    return best_;
  }

 private:
  // Adds (sign 1) or takes away (sign -1) the uses that the choice of node n brings.
  void apply(std::size_t n, double sign) {
    const auto add = [&](int begin, int end, double bytes) {
      for (int t = begin; t < end; ++t) use_[static_cast<std::size_t>(t)] += sign * bytes;
    };
    for (const NodeUse& use : problem_.nodes[n].uses) {
      add(use.begin, use.end, use.bytes[static_cast<std::size_t>(choices_[n])]);
    }
    for (const ProblemEdge* edge : closed_edges_[n]) {
      for (const EdgeUse& use : edge->uses) add(use.begin, use.end, pair(use.table, *edge));
    }
  }

  double pair(int table, const ProblemEdge& edge) const {
    return problem_.tables[static_cast<std::size_t>(table)].at(
        choices_[static_cast<std::size_t>(edge.from)], choices_[static_cast<std::size_t>(edge.to)]);
  }

  void visit(std::size_t n, double cost) {
    if (cost == kInfinity) return;
    if (n == problem_.nodes.size()) {
      complete(cost);
      return;
    }
    for (std::size_t c = 0; c < problem_.nodes[n].cost.size(); ++c) {
      choices_[n] = static_cast<int>(c);
      double sum = cost + problem_.nodes[n].cost[c];
      for (const ProblemEdge* edge : closed_edges_[n]) {
        if (edge->cost_table != -1) sum += pair(edge->cost_table, *edge);
      }
      apply(n, 1);
      visit(n + 1, sum);
      apply(n, -1);
    }
  }

  void complete(double cost) {
    double peak = problem_.base_use;
    int time = 0;
    for (std::size_t t = 0; t < use_.size(); ++t) {
      if (use_[t] > peak) {
        peak = use_[t];
        time = static_cast<int>(t);
      }
    }
    unlimited_ = std::min(unlimited_, cost);
    if (peak < best_.least_peak_use) {
      best_.least_peak_use = peak;
      best_.tightest_time = time;
    }
    if (peak <= problem_.use_limit && cost < best_.cost) {
      best_.feasible = true;
      best_.cost = cost;
      best_.choices = choices_;
    }
  }

  const Problem& problem_;
  std::vector<double> use_;
  std::vector<std::vector<const ProblemEdge*>> closed_edges_;
  std::vector<int> choices_;
  double unlimited_ = kInfinity;
  Solution best_;
};

}  // namespace

Result<Solution> solve_exhaustive(const Problem& problem, double limit) {
  AUTOPAR_RETURN_IF_ERROR(verify(problem));
  double combinations = 1;
  for (const ProblemNode& node : problem.nodes) {
    combinations *= static_cast<double>(node.cost.size());
  }
  if (combinations > limit) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "the exhaustive search would have to try %.3g combinations, more than its limit "
                  "of %.3g; use the searcher dp",
                  combinations, limit);
    return input_error(text);
  }
  return Enumeration(problem).run();
}

}  // namespace autopar
