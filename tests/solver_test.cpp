// The search on bare problems: dp against the exhaustive search, bounds against costs.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <algorithm>
#include <random>

#include "autopar/problem.hpp"

namespace autopar {
namespace {

enum class Shape { kChain, kTree, kCycle, kGrid, kClique, kSparse, kIsolated };
constexpr Shape kShapes[] = {Shape::kChain,  Shape::kTree,   Shape::kCycle,   Shape::kGrid,
                             Shape::kClique, Shape::kSparse, Shape::kIsolated};

struct Recipe {
  int nodes = 6;
  int most_choices = 4;
  Shape shape = Shape::kChain;
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
      switch (recipe_.shape) {
        case Shape::kChain:
          add_edge(i - 1, i);
          break;
        case Shape::kTree:
          add_edge(below(i), i);
          break;
        case Shape::kCycle:
          add_edge(i - 1, i);
          if (i == n - 1) add_edge(i, 0);
          break;
        case Shape::kGrid:
          if (i % 3 != 0) add_edge(i - 1, i);
          if (i >= 3) add_edge(i - 3, i);
          break;
        case Shape::kClique:
          for (int j = 0; j < i; ++j) add_edge(j, i);
          break;
        case Shape::kSparse:
          for (int j = 0; j < i; ++j) {
            if (chance(0.35)) add_edge(j, i);
          }
          break;
        case Shape::kIsolated:
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

bool close(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

void check_claims(const Problem& problem, const Solution& solution) {
  if (!solution.feasible) return;
  const Evaluation found = evaluate(problem, solution.choices);
  CHECK(found.cost == solution.cost);
  CHECK(found.peak_use == solution.peak_use);
  CHECK(found.peak_use <= problem.use_limit);
  CHECK(solution.lower_bound <= solution.cost);
  CHECK(solution.unlimited_lower_bound <= solution.cost * (1 + 1e-12));
}

void check_against_exhaustive(const Problem& problem) {
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
}

}  // namespace

TEST_CASE("dp equals the exhaustive search without a limit", "[solver]") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    Generator generator(seed);
    Recipe recipe;
    recipe.shape = kShapes[seed % 7];
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
    recipe.shape = kShapes[seed % 7];
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
    recipe.shape = kShapes[seed % 7];
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

// The same problem with its nodes, edges and choices in another order.
Problem shuffled(const Problem& problem, unsigned seed) {
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
    CostTable moved = problem.tables[static_cast<std::size_t>(index)];
    std::size_t k = 0;
    for (int row : choices[static_cast<std::size_t>(edge.from)]) {
      for (int column : choices[static_cast<std::size_t>(edge.to)]) {
        moved.values[k++] = problem.tables[static_cast<std::size_t>(index)].at(row, column);
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

Problem scaled(Problem problem, double factor) {
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
    recipe.shape = kShapes[seed % 7];
    recipe.nodes = recipe.shape == Shape::kClique || recipe.shape == Shape::kSparse
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

}  // namespace autopar
