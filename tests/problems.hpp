// For tests: bare search problems at random from a seed, and the same problem written otherwise.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "autopar/problem.hpp"

namespace autopar::testing {

enum class Topology { kChain, kTree, kCycle, kGrid, kClique, kSparse, kIsolated };
inline constexpr Topology kTopologies[] = {Topology::kChain,   Topology::kTree,   Topology::kCycle,
                                           Topology::kGrid,    Topology::kClique, Topology::kSparse,
                                           Topology::kIsolated};

struct Recipe {
  int nodes = 6;
  int most_choices = 4;
  Topology topology = Topology::kChain;
  bool parallel = false;   // some edges twice, some turned around
  bool forbidden = false;  // infinite choices and pairs
  bool ties = false;       // small whole costs
  bool uses = false;
  bool edge_uses = false;
  double tightness = 0.5;  // of the limit, between the least and the most that can be used
};

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance(double p) { return unit() < p; }
  double unit() { return static_cast<double>(random_() >> 8) / static_cast<double>(1U << 24); }

  Problem make(const Recipe& recipe) {
    recipe_ = recipe;
    problem_ = {};
    problem_.horizon = recipe.uses ? 1 + below(6) : 0;
    for (int n = 0; n < recipe.nodes; ++n) add_node();
    connect();
    if (recipe.uses) set_limit();
    return problem_;
  }

 private:
  double cost() { return recipe_.ties ? below(4) : 1e-3 * (1 + 999 * unit() * unit()); }

  void add_node() {
    ProblemNode node;
    const int choices = 1 + below(recipe_.most_choices);
    for (int c = 0; c < choices; ++c) {
      node.cost.push_back(recipe_.forbidden && chance(0.1) ? kInfinity : cost());
    }
    for (int u = recipe_.uses ? below(3) : 0; u > 0; --u) {
      NodeUse use = {.begin = below(problem_.horizon), .end = 0, .bytes = {}};
      use.end = use.begin + below(problem_.horizon - use.begin + 1);
      for (int c = 0; c < choices; ++c) use.bytes.push_back(below(20));
      node.uses.push_back(use);
    }
    problem_.nodes.push_back(node);
  }

  int add_table(int rows, int columns, bool bytes) {
    CostTable table = {rows, columns, {}};
    for (int i = 0; i < rows * columns; ++i) {
      const bool forbidden = !bytes && recipe_.forbidden && chance(0.15);
      table.values.push_back(forbidden ? kInfinity : bytes ? below(8) : cost());
    }
    return problem_.add_table(table);
  }

  void add_edge(int from, int to) {
    if (from == to) return;
    if (chance(0.3)) std::swap(from, to);
    const auto count = [&](int n) {
      return static_cast<int>(problem_.nodes[static_cast<std::size_t>(n)].cost.size());
    };
    ProblemEdge edge = {.from = from, .to = to, .cost_table = -1, .uses = {}};
    edge.cost_table = add_table(count(from), count(to), false);
    if (recipe_.uses && recipe_.edge_uses && chance(0.5)) {
      const int begin = below(problem_.horizon);
      const int end = begin + below(problem_.horizon - begin + 1);
      edge.uses.push_back({begin, end, add_table(count(from), count(to), true)});
      if (chance(0.2)) edge.cost_table = -1;
    }
    problem_.edges.push_back(edge);
    if (recipe_.parallel && chance(0.3)) add_edge(from, to);
  }

  void connect() {
    const int n = recipe_.nodes;
    for (int i = 1; i < n; ++i) {
      switch (recipe_.topology) {
        case Topology::kChain:
          add_edge(i - 1, i);
          break;
        case Topology::kTree:
          add_edge(below(i), i);
          break;
        case Topology::kCycle:
          add_edge(i - 1, i);
          if (i == n - 1) add_edge(i, 0);
          break;
        case Topology::kGrid:
          if (i % 3 != 0) add_edge(i - 1, i);
          if (i >= 3) add_edge(i - 3, i);
          break;
        case Topology::kClique:
          for (int j = 0; j < i; ++j) add_edge(j, i);
          break;
        case Topology::kSparse:
          for (int j = 0; j < i; ++j) {
            if (chance(0.35)) add_edge(j, i);
          }
          break;
        case Topology::kIsolated:
          break;
      }
    }
  }

  // Between what everything small and everything large use at the fullest time.
  void set_limit() {
    double low = 0, high = 0;
    for (int draw = 0; draw < 30; ++draw) {
      std::vector<int> choices;
      for (const ProblemNode& node : problem_.nodes) {
        choices.push_back(below(static_cast<int>(node.cost.size())));
      }
      const double peak = evaluate(problem_, choices).peak_use;
      low = draw == 0 ? peak : std::min(low, peak);
      high = std::max(high, peak);
    }
    problem_.use_limit = std::floor(low + recipe_.tightness * (high - low)) - (chance(0.2) ? 4 : 0);
    problem_.use_limit = std::max(0.0, problem_.use_limit);
  }

  std::mt19937 random_;
  Recipe recipe_;
  Problem problem_;
};

// The same problem with its nodes, edges and choices in another order.
inline Problem shuffled(const Problem& problem, unsigned seed) {
  std::mt19937 random(seed);
  const auto order = [&](std::size_t count) {
    std::vector<int> result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = static_cast<int>(i);
    for (std::size_t i = count; i > 1; --i) std::swap(result[i - 1], result[random() % i]);
    return result;
  };
  Problem result = problem;
  const std::vector<int> place = order(problem.nodes.size());
  std::vector<std::vector<int>> choices;
  for (const ProblemNode& node : problem.nodes) choices.push_back(order(node.cost.size()));
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    ProblemNode node = problem.nodes[n];
    for (std::size_t c = 0; c < node.cost.size(); ++c) {
      const auto from = static_cast<std::size_t>(choices[n][c]);
      node.cost[c] = problem.nodes[n].cost[from];
      for (std::size_t u = 0; u < node.uses.size(); ++u) {
        node.uses[u].bytes[c] = problem.nodes[n].uses[u].bytes[from];
      }
    }
    result.nodes[static_cast<std::size_t>(place[n])] = node;
  }
  const auto table = [&](int index, const ProblemEdge& edge) {
    const CostTable& whole = problem.tables[static_cast<std::size_t>(index)];
    CostTable moved = {whole.rows, whole.columns, {}};
    for (int row : choices[static_cast<std::size_t>(edge.from)]) {
      for (int column : choices[static_cast<std::size_t>(edge.to)]) {
        moved.values.push_back(whole.at(row, column));
      }
    }
    return result.add_table(moved);
  };
  const std::vector<int> edge_order = order(problem.edges.size());
  for (std::size_t e = 0; e < problem.edges.size(); ++e) {
    const ProblemEdge& from = problem.edges[static_cast<std::size_t>(edge_order[e])];
    ProblemEdge edge = from;
    edge.from = place[static_cast<std::size_t>(from.from)];
    edge.to = place[static_cast<std::size_t>(from.to)];
    if (edge.cost_table >= 0) edge.cost_table = table(from.cost_table, from);
    for (EdgeUse& use : edge.uses) use.table = table(use.table, from);
    result.edges[e] = edge;
  }
  return result;
}

inline Problem scaled(Problem problem, double factor) {
  for (ProblemNode& node : problem.nodes) {
    for (double& cost : node.cost) cost *= factor;
  }
  std::vector<char> is_cost(problem.tables.size(), 0);
  for (const ProblemEdge& edge : problem.edges) {
    if (edge.cost_table >= 0) is_cost[static_cast<std::size_t>(edge.cost_table)] = 1;
  }
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    if (!is_cost[t]) continue;
    for (double& value : problem.tables[t].values) value *= factor;
  }
  return problem;
}

}  // namespace autopar::testing
