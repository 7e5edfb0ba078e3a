// Folding of like layers: with it, without it and tried out give the same.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <numeric>
#include <random>

#include "autopar/problem.hpp"
#include "cases.hpp"
#include "solve/bound/fold.hpp"
#include "solve/bound/like_parts.hpp"
#include "solve/network/reduce.hpp"
#include "solve/without_limit.hpp"

namespace autopar::solver::layers_test {
namespace {

// The same block several times: its nodes are all joined to each other, and some to a hub that all
// blocks share (`chained`: or to the block before). Costs are whole numbers, so sums are exact.
class Layers {
 public:
  explicit Layers(unsigned seed) : random_(seed) {}

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  Problem make(int blocks, int size, int labels, bool chained, bool limited) {
    Problem problem;
    labels_ = labels;
    problem.horizon = limited ? blocks : 0;
    problem.nodes.push_back(node(0, problem.horizon, limited));
    std::vector<ProblemNode> block;
    for (int n = 0; n < size; ++n) block.push_back(node(0, 0, false));
    std::vector<std::vector<double>> bytes;
    for (int n = 0; n < size; ++n) bytes.push_back(numbers(12));
    std::vector<int> within, across;
    for (int k = 0; k < size * size; ++k) within.push_back(problem.add_table(table()));
    for (int k = 0; k < size; ++k) across.push_back(problem.add_table(table()));
    for (int b = 0; b < blocks; ++b) {
      const int first = 1 + b * size;
      for (int n = 0; n < size; ++n) {
        problem.nodes.push_back(block[static_cast<std::size_t>(n)]);
        // One use lasts from the block on, as what is kept; one is there during the block only.
        if (limited) {
          problem.nodes.back().uses = {{n == 0 ? b : 0, blocks, bytes[static_cast<std::size_t>(n)]},
                                       {b, b + 1, bytes[0]}};
        }
        for (int m = 0; m < n; ++m) {
          problem.edges.push_back(
              {first + m, first + n, within[static_cast<std::size_t>(n * size + m)], {}});
        }
        const int source = chained ? std::max(0, first - size + (n + 1) % size) : 0;
        problem.edges.push_back({source, first + n, across[static_cast<std::size_t>(n)], {}});
      }
    }
    if (limited) set_limit(problem);
    return problem;
  }

 private:
  std::vector<double> numbers(int most) {
    std::vector<double> values;
    for (int l = 0; l < labels_; ++l) values.push_back(below(most));
    return values;
  }

  ProblemNode node(int begin, int end, bool uses) {
    ProblemNode made;
    made.cost = numbers(20);
    if (uses) made.uses = {{begin, end, numbers(12)}};
    return made;
  }

  CostTable table() {
    CostTable made = {labels_, labels_, {}};
    for (int k = 0; k < labels_ * labels_; ++k) made.values.push_back(below(20));
    return made;
  }

  // Between the least and the most that a few labellings take.
  void set_limit(Problem& problem) {
    double least = kInfinity, most = 0;
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<int> choices;
      for (std::size_t n = 0; n < problem.nodes.size(); ++n) choices.push_back(below(labels_));
      const double peak = evaluate(problem, choices).peak_use;
      least = std::min(least, peak);
      most = std::max(most, peak);
    }
    problem.use_limit = least + below(static_cast<int>(most - least) + 1);
  }

  std::mt19937 random_;
  int labels_ = 2;
};

struct Closed {
  double value = kInfinity;
  double bound = 0;
  std::vector<int> labels;
};

Closed close(const Problem& problem, bool folded) {
  Budget budget;
  Race race(problem, budget);
  race.left_out = folded ? 0 : bit_of(SolveStage::kFold);
  FreeSearch(race).close();
  return {race.cost, race.bound, race.choices};
}

// How many nodes are left of a problem, and in how many classes (0: not folded).
std::pair<std::size_t, std::size_t> folded_size(const Problem& problem) {
  const auto net = build_network(problem, {});
  reduce(*net);
  std::size_t left = 0;
  for (const Node& node : net->nodes) left += node.gone ? 0 : 1;
  return {left, fold(*net).first.size()};
}

// Passes over the folded network, each checked: never above the optimum, never falling, and
// no label of an optimal labelling dies. Returns the last bound.
double check_folded(const Network& net, const Fold& parts, Dual& dual, double optimum,
                    const std::vector<int>& labels) {
  const double slack = 1e-9 * (1 + optimum);
  double before = -kInfinity;
  for (int pass = 0; pass < 30; ++pass) {
    dual.pass(optimum + 1);
    REQUIRE(!dual.exhausted());
    CHECK(dual.bound() <= optimum + slack);
    CHECK(dual.bound() >= before - slack);
    before = dual.bound();
  }
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    CHECK(dual.alive(parts.class_of[n], labels[n]));
  }
  const double value = value_of(net, unfold(parts, dual.decode_and_improve()));
  CHECK(value >= optimum - slack);
  return before;
}

TEST_CASE("messages of like parts bound the whole", "[solver][layers]") {
  int folded = 0;
  double bounds = 0, whole_bounds = 0;
  for (unsigned seed = 0; seed < cases(60u); ++seed) {
    Layers layers(seed);
    const bool chained = seed % 2 == 1;
    const Problem problem = layers.make(chained ? 30 : 20, 4, 2 + layers.below(2), chained, false);
    const Closed optimum = close(problem, false);
    const auto net = build_network(problem, {});
    Dual whole(*net);
    for (int pass = 0; pass < 30; ++pass) whole.pass(kInfinity);
    for (const int rounds : {1, 2, 5, effort::fold::kFoldRounds}) {
      const Fold parts = fold(*net, rounds);
      if (parts.first.empty()) continue;
      ++folded;
      INFO("seed " << seed << ", " << rounds << " rounds");
      Dual dual(*net, parts);
      const double bound = check_folded(*net, parts, dual, optimum.value, optimum.labels);
      // As many quick passes before it.
      QuickDual quick(*net, parts);
      for (int pass = 0; pass < 30; ++pass) quick.pass(kInfinity);
      CHECK(quick.bound() == Approx(bound).epsilon(0.05));
      std::vector<int> same(parts.edges_in.size());
      std::iota(same.begin(), same.end(), 0);
      Dual later(*net, parts);
      later.take_over(quick, same);
      CHECK(check_folded(*net, parts, later, optimum.value, optimum.labels) >= bound * (1 - 1e-3));
      bounds += bound;
      whole_bounds += whole.bound();
    }
  }
  CHECK(folded >= cases(100));
  // What the ends of chains cost is little.
  CHECK(bounds > 0.97 * whole_bounds);
}

TEST_CASE("folding on and off find the same optimum", "[solver][layers]") {
  int folded = 0;
  for (unsigned seed = 0; seed < cases(60u); ++seed) {
    Layers layers(seed);
    const bool chained = seed % 2 == 1;
    const Problem problem = layers.make(chained ? 40 : 25, 4, 2 + layers.below(2), chained, false);
    const auto [left, classes] = folded_size(problem);
    folded += classes > 0 ? 1 : 0;
    CHECK(2 * classes <= left);
    const Closed with = close(problem, true), without = close(problem, false);
    INFO("seed " << seed);
    REQUIRE(with.value == Approx(without.value).epsilon(1e-9));
    CHECK(with.bound <= without.value * (1 + 1e-9));
    CHECK(without.bound <= with.value * (1 + 1e-9));
    CHECK(evaluate(problem, with.labels).cost == Approx(with.value).epsilon(1e-9));
  }
  CHECK(folded >= cases(30));  // otherwise there was nothing to see
}

// Blocks in a row, joined within, to the next and to the one after that, by few tables that occur
// again and again.
Problem repeated(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int size = 2 + below(2), labels = 2 + below(3), blocks = 16 + below(10);
  Problem problem;
  std::vector<int> tables;
  for (int t = 1 + below(3); t > 0; --t) {
    CostTable table = {labels, labels, {}};
    for (int k = 0; k < labels * labels; ++k)
      table.values.push_back(below(3) == 0 ? 200 : below(6));
    tables.push_back(problem.add_table(table));
  }
  std::vector<std::vector<double>> costs;
  for (int k = 1 + below(3); k > 0; --k) {
    costs.emplace_back();
    for (int l = 0; l < labels; ++l) costs.back().push_back(below(30));
  }
  std::vector<std::size_t> cost_of;
  for (int n = 0; n < size; ++n) cost_of.push_back(random() % costs.size());
  struct Joint {
    int from, to, table;
  };
  std::vector<Joint> joints;
  for (int k = size + below(size); k > 0; --k) {
    const int from = below(size), to = below(size) + size * below(3);
    if (from != to) joints.push_back({from, to, tables[random() % tables.size()]});
  }
  for (int n = 0; n < size * blocks; ++n) {
    problem.nodes.emplace_back();
    problem.nodes.back().cost = costs[cost_of[static_cast<std::size_t>(n % size)]];
    if (n < size || n >= size * (blocks - 1)) {
      for (double& cost : problem.nodes.back().cost) cost = below(3) == 0 ? 1000 : below(30);
    }
  }
  for (int b = 0; b < blocks; ++b) {
    for (const Joint& joint : joints) {
      const int to = b * size + joint.to;
      if (to < size * blocks) problem.edges.push_back({b * size + joint.from, to, joint.table, {}});
    }
  }
  return problem;
}

TEST_CASE("like parts of random blocks are bounded by no more than the optimum",
          "[solver][layers]") {
  int seen = 0, tight = 0;
  for (unsigned seed = 0; seed < cases(400u); ++seed) {
    const Problem problem = repeated(seed);
    const Closed optimum = close(problem, false);
    const auto net = build_network(problem, {});
    INFO("seed " << seed);
    REQUIRE(optimum.bound == Approx(optimum.value).epsilon(1e-9));
    for (const int rounds : {1, 2, 3, 5, effort::fold::kFoldRounds}) {
      const auto parts = LikeParts::of(*net, rounds);
      if (parts == nullptr) continue;
      double cutoff = kInfinity;
      Incumbent best;
      Budget budget;
      parts->settle_quickly({}, cutoff, &best, budget);
      const double bound = parts->settle_exactly(cutoff, budget);
      ++seen;
      tight += bound > 0.9 * optimum.value ? 1 : 0;
      CHECK(bound <= optimum.value * (1 + 1e-9));
      CHECK(best.value >= optimum.value * (1 - 1e-9));
    }
    const Closed folded = close(problem, true);
    CHECK(folded.value == Approx(optimum.value).epsilon(1e-9));
    CHECK(folded.bound <= optimum.value * (1 + 1e-9));
  }
  CHECK(seen > cases(100));
  CHECK(tight > cases(50));
}

// Like nodes that are joined to each other: only those at the ends have other neighbours. What is
// dear in one step is cheap in several, in the middle of the chain, so the best labelling does not
// treat like nodes alike.
TEST_CASE("a chain of like nodes is bounded by no more than its optimum", "[solver][layers]") {
  constexpr int kLabels = 9, kNodes = 60;
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Problem problem;
    CostTable table = {kLabels, kLabels, {}};
    for (int k = 0; k < kLabels * kLabels; ++k) {
      const int step = std::abs(k / kLabels - k % kLabels);
      table.values.push_back(step > 1 ? 1000 : step * static_cast<double>(1 + random() % 3));
    }
    const int joint = problem.add_table(table);
    for (int n = 0; n < kNodes; ++n) {
      problem.nodes.emplace_back();
      for (int l = 0; l < kLabels; ++l) {
        const bool first = n == 0 && l > 0, like = n > 0;
        problem.nodes.back().cost.push_back(first ? 5000 : like ? 3.0 * (kLabels - l) : 0);
      }
      if (n > 0) problem.edges.push_back({n - 1, n, joint, {}});
    }
    const Closed with = close(problem, true), without = close(problem, false);
    INFO("seed " << seed);
    CHECK(with.value == Approx(without.value).epsilon(1e-9));
    CHECK(with.bound <= without.value * (1 + 1e-9));
    const auto net = build_network(problem, {});
    for (const int rounds : {1, 2, 3}) {
      const auto parts = LikeParts::of(*net, rounds);
      if (parts == nullptr) continue;
      double cutoff = kInfinity;
      Incumbent best;
      Budget budget;
      parts->settle_quickly({}, cutoff, &best, budget);
      const double bound = parts->settle_exactly(cutoff, budget);
      CHECK(bound <= without.value * (1 + 1e-9));
    }
  }
}

// Prices of few rows tell apart only what is in use there: the bound is one at any prices, also
// after rows were added, and no label of what is within the limit dies.
TEST_CASE("messages of like parts bound the whole at any prices", "[solver][layers]") {
  int folded = 0;
  for (unsigned seed = 0; seed < cases(60u); ++seed) {
    INFO("seed " << seed);
    Layers layers(seed);
    const Problem problem = layers.make(20, 4, 3, seed % 2 == 1, true);
    const auto net = build_network(problem, maximal_times(problem));
    if (net->impossible || net->capacity.empty()) continue;
    const Solution optimum = solve_dp(problem, {});
    if (!optimum.feasible || optimum.gap() > 0) continue;
    std::vector<int> rows;
    std::unique_ptr<LikeParts> parts;
    for (int step = 0; step < 3; ++step) {
      rows.push_back(layers.below(static_cast<int>(net->capacity.size())));
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
      std::unique_ptr<LikeParts> finer = LikeParts::of(*net, effort::fold::kFoldRounds, rows);
      if (finer == nullptr) break;
      if (parts != nullptr) finer->take_over(*parts);
      parts = std::move(finer);
      ++folded;
      Vector prices(net->capacity.size(), 0.0);
      for (int row : rows) prices[static_cast<std::size_t>(row)] = 0.01 * layers.below(100);
      parts->set_multipliers(prices);
      double cutoff = optimum.cost * 1.001 + 1e-6;
      Budget budget;
      parts->settle_quickly({}, cutoff, nullptr, budget);
      const double bound = parts->settle_exactly(cutoff, budget);
      CHECK(bound <= optimum.cost * (1 + 1e-9));
      // Every node alone, at the same prices.
      Dual whole(*net);
      whole.set_multipliers(prices);
      for (int pass = 0; pass < 60; ++pass) whole.pass(kInfinity);
      CHECK(bound <= whole.bound() + 0.02 * std::abs(whole.bound()) + 1e-9);
      const std::vector<Labels> alive = parts->alive();
      for (std::size_t n = 0; n < alive.size(); ++n) {
        const Labels& choices = net->origin_labels[n];
        const auto label = std::find(choices.begin(), choices.end(), optimum.choices[n]);
        const int l = static_cast<int>(label - choices.begin());
        CHECK(std::count(alive[n].begin(), alive[n].end(), l) == 1);
      }
    }
  }
  CHECK(folded > cases(60));
}

TEST_CASE("like parts within a memory limit, against all combinations", "[solver][layers]") {
  for (unsigned seed = 0; seed < cases(120u); ++seed) {
    Layers layers(seed);
    const Problem problem = layers.make(5, 3, 2, seed % 3 == 1, seed % 4 != 0);
    const auto tried = solve_exhaustive(problem);
    REQUIRE(tried);
    const Solution found = solve_dp(problem, {});
    INFO("seed " << seed);
    REQUIRE(found.feasible == tried->feasible);
    if (!found.feasible) continue;
    CHECK(found.cost == Approx(tried->cost).epsilon(1e-9));
    CHECK(found.lower_bound <= tried->cost * (1 + 1e-9));
    CHECK(evaluate(problem, found.choices).peak_use <= problem.use_limit);
  }
}

}  // namespace
}  // namespace autopar::solver::layers_test
