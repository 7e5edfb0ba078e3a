#include "search/rec/level.hpp"

#include <algorithm>
#include <limits>

#include "search/rec/messages.hpp"

namespace autopar::rec {

namespace {

constexpr double kTie = 1e-9;

// What the nodes around a value say about one role of it. Infinite prices are counted, not added:
// what was added to them would be lost when they are taken back.
struct Said {
  double finite = 0;
  double nevers = 0;

  void add(double price, double sign) {
    if (price >= kNever / 2) {
      nevers += sign;
    } else {
      finite += sign * price;
    }
  }
  double total() const { return finite + kNever * nevers; }
};

// Each star plays the role in which it is cheapest.
double cost_of_stars(const LevelProblem& problem, const std::vector<Said>& said) {
  double cost = 0;
  for (std::size_t s = 0; s < problem.star_count(); ++s) {
    double least = std::numeric_limits<double>::infinity();
    for (int r = problem.first_role[s]; r < problem.first_role[s + 1]; ++r) {
      least = std::min(least, said[static_cast<std::size_t>(r)].total());
    }
    cost += least;
  }
  return cost;
}

struct Decider {
  const LevelProblem& problem;
  const PortRows& messages;
  std::vector<Said> said;          // per role of all stars: base and what all ports say now
  std::vector<int> choice;         // -1: undecided
  std::vector<int> changed_at;     // per star, in steps
  std::vector<int> considered_at;  // per node, in steps
  std::vector<double> others;      // scratch: per role of the node's stars, without the node
  int step = 0;

  Decider(const LevelProblem& p, const PortRows& m)
      : problem(p),
        messages(m),
        said(p.base.size()),
        choice(p.nodes.size(), -1),
        changed_at(p.star_count(), 0),
        considered_at(p.nodes.size(), -1) {
    for (std::size_t r = 0; r < said.size(); ++r) said[r].finite = p.base[r];
    for (std::size_t n = 0; n < p.nodes.size(); ++n) add(n, 1);
  }

  const double* row(std::size_t n, std::size_t port) const {
    if (choice[n] < 0) return messages.row(port);
    const auto prices = static_cast<std::size_t>(problem.ports[port].prices);
    return problem.prices[prices].row(static_cast<std::size_t>(choice[n]));
  }

  Said* said_of(int star) {
    return said.data() + problem.first_role[static_cast<std::size_t>(star)];
  }

  // What the node says now, or takes back.
  void add(std::size_t n, double sign) {
    for (std::size_t i = problem.first_port(n); i < problem.first_port(n + 1); ++i) {
      const int star = problem.ports[i].star;
      const double* price = row(n, i);
      Said* sum = said_of(star);
      for (std::size_t r = 0; r < problem.roles(star); ++r) sum[r].add(price[r], sign);
      changed_at[static_cast<std::size_t>(star)] = step;
    }
  }

  void set_others(std::size_t n) {
    others.clear();
    for (std::size_t i = problem.first_port(n); i < problem.first_port(n + 1); ++i) {
      const int star = problem.ports[i].star;
      const double* price = row(n, i);
      const Said* sum = said_of(star);
      for (std::size_t r = 0; r < problem.roles(star); ++r) {
        Said without = sum[r];
        without.add(price[r], -1);
        others.push_back(without.total());
      }
    }
  }

  double cost_of(std::size_t n, std::size_t c) const {
    double cost = problem.costs[static_cast<std::size_t>(problem.nodes[n].cost)][c];
    const double* other = others.data();
    for (std::size_t i = problem.first_port(n); i < problem.first_port(n + 1); ++i) {
      const PortPrices& prices = problem.prices[static_cast<std::size_t>(problem.ports[i].prices)];
      const double* price = prices.row(c);
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t r = 0; r < prices.roles; ++r) least = std::min(least, other[r] + price[r]);
      cost += least;
      other += prices.roles;
    }
    return cost;
  }

  bool is_settled(std::size_t n) const {
    for (std::size_t i = problem.first_port(n); i < problem.first_port(n + 1); ++i) {
      if (changed_at[static_cast<std::size_t>(problem.ports[i].star)] > considered_at[n]) {
        return false;
      }
    }
    return considered_at[n] >= 0;
  }

  // Takes the best choice; whether it changed.
  bool reconsider(std::size_t n) {
    if (is_settled(n)) return false;
    set_others(n);
    int best = -1;
    double best_cost = 0;
    for (std::size_t c = 0; c < problem.choices(n); ++c) {
      const double cost = cost_of(n, c);
      const bool kept = static_cast<int>(c) == choice[n];
      const double margin = kTie * std::max(cost, best_cost);
      // What was decided stays unless something is better.
      if (best >= 0 && !(cost < best_cost - margin) && !(kept && cost < best_cost + margin)) {
        continue;
      }
      best = static_cast<int>(c);
      best_cost = cost;
    }
    ++step;
    const bool changed = best != choice[n];
    if (changed) {
      add(n, -1);
      choice[n] = best;
      add(n, 1);
    }
    considered_at[n] = step;
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

  // All are decided.
  double total() const {
    double cost = 0;
    for (std::size_t n = 0; n < choice.size(); ++n) {
      cost += problem.costs[static_cast<std::size_t>(problem.nodes[n].cost)]
                           [static_cast<std::size_t>(choice[n])];
    }
    return cost + cost_of_stars(problem, said);
  }
};

}  // namespace

int LevelProblem::add_star(const Row& star_base) {
  if (first_role.empty()) first_role.push_back(0);
  base.insert(base.end(), star_base.begin(), star_base.end());
  base.resize(base.size() + padded(star_base.size()) - star_base.size(), kForbidden);
  first_role.push_back(static_cast<int>(base.size()));
  return static_cast<int>(first_role.size()) - 2;
}

int LevelProblem::add_cost(Row cost) {
  costs.push_back(std::move(cost));
  return static_cast<int>(costs.size()) - 1;
}

int LevelProblem::add_prices(PortPrices table) {
  prices.push_back(std::move(table));
  return static_cast<int>(prices.size()) - 1;
}

int LevelProblem::add_node(int cost, double weight) {
  nodes.push_back({cost, weight, static_cast<int>(ports.size())});
  return static_cast<int>(nodes.size()) - 1;
}

void LevelProblem::add_port(int star, int table, bool produces) {
  ports.push_back({star, table, produces});
}

std::vector<int> decide(const LevelProblem& problem, const DecideOptions& options) {
  const PortRows messages = messages_to_stars(problem, options.passes);
  std::vector<std::size_t> order(problem.nodes.size());
  for (std::size_t n = 0; n < order.size(); ++n) order[n] = n;
  Decider in_order(problem, messages), by_weight = in_order;
  for (std::size_t n : order) in_order.reconsider(n);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return problem.nodes[a].weight > problem.nodes[b].weight;
  });
  for (std::size_t n : order) by_weight.reconsider(n);
  Decider& best = in_order.total() * (1 + kTie) < by_weight.total() ? in_order : by_weight;
  best.sweep(options.sweeps);
  return std::move(best.choice);
}

double level_cost(const LevelProblem& problem, const std::vector<int>& choices) {
  std::vector<Said> said(problem.base.size());
  for (std::size_t r = 0; r < said.size(); ++r) said[r].finite = problem.base[r];
  double cost = 0;
  for (std::size_t n = 0; n < choices.size(); ++n) {
    const auto c = static_cast<std::size_t>(choices[n]);
    cost += problem.costs[static_cast<std::size_t>(problem.nodes[n].cost)][c];
    for (std::size_t i = problem.first_port(n); i < problem.first_port(n + 1); ++i) {
      const LevelPort& port = problem.ports[i];
      const double* price = problem.prices[static_cast<std::size_t>(port.prices)].row(c);
      Said* sum = said.data() + problem.first_role[static_cast<std::size_t>(port.star)];
      for (std::size_t r = 0; r < problem.roles(port.star); ++r) sum[r].add(price[r], 1);
    }
  }
  return cost + cost_of_stars(problem, said);
}

}  // namespace autopar::rec
