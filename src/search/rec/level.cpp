#include "search/rec/level.hpp"

#include <algorithm>
#include <limits>

#include "search/rec/messages.hpp"

namespace autopar::rec {

namespace {

constexpr double kTie = 1e-9;

struct Decider {
  const LevelProblem& problem;
  const std::vector<std::vector<Row>>& messages;
  std::vector<Row> sums;    // per star: base and what all its ports say now
  std::vector<int> choice;  // -1: undecided

  Decider(const LevelProblem& p, const std::vector<std::vector<Row>>& m)
      : problem(p), messages(m), choice(p.nodes.size(), -1) {
    for (const Star& star : p.stars) sums.push_back(star.base);
    for (std::size_t n = 0; n < p.nodes.size(); ++n) add(n, 1);
  }

  // What the node says now, or takes back.
  void add(std::size_t n, double sign) {
    for (std::size_t i = 0; i < problem.nodes[n].ports.size(); ++i) {
      const LevelPort& port = problem.nodes[n].ports[i];
      const Row& row =
          choice[n] < 0 ? messages[n][i] : (*port.prices)[static_cast<std::size_t>(choice[n])];
      Row& sum = sums[static_cast<std::size_t>(port.star)];
      for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += sign * row[r];
    }
  }

  double star_cost(int star, const Row& extra) const {
    const auto s = static_cast<std::size_t>(star);
    double best = std::numeric_limits<double>::infinity();
    for (int role : problem.stars[s].roles) {
      const auto r = static_cast<std::size_t>(role);
      best = std::min(best, sums[s][r] + extra[r]);
    }
    return best;
  }

  // Takes the best choice; whether it changed.
  bool reconsider(std::size_t n) {
    const LevelNode& node = problem.nodes[n];
    add(n, -1);
    int best = -1;
    double best_cost = 0;
    for (std::size_t c = 0; c < node.cost->size(); ++c) {
      double cost = (*node.cost)[c];
      for (const LevelPort& port : node.ports) cost += star_cost(port.star, (*port.prices)[c]);
      const bool kept = static_cast<int>(c) == choice[n];
      const double margin = kTie * std::max(cost, best_cost);
      // What was decided stays unless something is better.
      if (best >= 0 && !(cost < best_cost - margin) && !(kept && cost < best_cost + margin)) {
        continue;
      }
      best = static_cast<int>(c);
      best_cost = cost;
    }
    const bool changed = best != choice[n];
    choice[n] = best;
    add(n, 1);
    return changed;
  }

  void sweep(int sweeps) {
    bool changed = true;
    for (int s = 0; s < sweeps && changed; ++s) {
      changed = false;
      // Down and up the graph in turn, so that a change runs along a chain in one sweep.
      for (std::size_t i = 0; i < choice.size(); ++i) {
        changed |= reconsider(s % 2 == 0 ? i : choice.size() - 1 - i);
      }
    }
  }
};

}  // namespace

std::vector<int> decide(const LevelProblem& problem, const DecideOptions& options) {
  const auto messages = messages_to_stars(problem, options.passes);
  std::vector<std::size_t> order(problem.nodes.size());
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = n;
  Decider in_order(problem, messages);
  for (std::size_t n : order) in_order.reconsider(n);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return problem.nodes[a].weight > problem.nodes[b].weight;
  });
  Decider by_weight(problem, messages);
  for (std::size_t n : order) by_weight.reconsider(n);
  const double margin = 1 + kTie;
  const bool ordered =
      level_cost(problem, in_order.choice) * margin < level_cost(problem, by_weight.choice);
  Decider& best = ordered ? in_order : by_weight;
  best.sweep(options.sweeps);
  return std::move(best.choice);
}

double level_cost(const LevelProblem& problem, const std::vector<int>& choices) {
  std::vector<Row> sums;
  for (const Star& star : problem.stars) sums.push_back(star.base);
  double cost = 0;
  for (std::size_t n = 0; n < choices.size(); ++n) {
    const auto c = static_cast<std::size_t>(choices[n]);
    cost += (*problem.nodes[n].cost)[c];
    for (const LevelPort& port : problem.nodes[n].ports) {
      Row& sum = sums[static_cast<std::size_t>(port.star)];
      for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += (*port.prices)[c][r];
    }
  }
  for (std::size_t s = 0; s < sums.size(); ++s) {
    double best = std::numeric_limits<double>::infinity();
    for (int role : problem.stars[s].roles) {
      best = std::min(best, sums[s][static_cast<std::size_t>(role)]);
    }
    cost += best;
  }
  return cost;
}

}  // namespace autopar::rec
