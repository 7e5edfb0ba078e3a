// Nodes that follow from others: the problem with and without them, against the exhaustive search.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <random>

#include "autopar/iopddl.hpp"
#include "autopar/problem.hpp"
#include "solve/network/presolve.hpp"

namespace autopar::presolve_test {
namespace {

// Random problems most of whose tables allow one partner per row or per column, so that nodes
// follow from each other; some labels have no partner at all.
class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance(int percent) { return below(100) < percent; }

  Problem make(bool limited, int most_nodes) {
    const int nodes = 2 + below(most_nodes - 1);
    problem_ = {};
    problem_.horizon = limited ? 1 + below(6) : 0;
    for (int n = 0; n < nodes; ++n) add_node(limited);
    for (int n = 1; n < nodes; ++n) {
      add_edge(below(n), n, limited);
      if (chance(30)) add_edge(below(n), n, limited);
      if (chance(15)) add_edge(n, below(n), limited);
    }
    if (limited) set_limit();
    return problem_;
  }

 private:
  int count(int n) const {
    return static_cast<int>(problem_.nodes[static_cast<std::size_t>(n)].cost.size());
  }

  void add_node(bool limited) {
    ProblemNode node;
    const int choices = 1 + below(4);
    for (int c = 0; c < choices; ++c) node.cost.push_back(chance(4) ? kInfinity : below(30));
    for (int u = limited ? below(3) : 0; u > 0; --u) {
      NodeUse use = {.begin = below(problem_.horizon), .end = 0, .bytes = {}};
      use.end = use.begin + below(problem_.horizon - use.begin + 1);
      for (int c = 0; c < choices; ++c) use.bytes.push_back(below(20));
      node.uses.push_back(use);
    }
    problem_.nodes.push_back(node);
  }

  void add_edge(int from, int to, bool limited) {
    if (from == to) return;
    CostTable table = {count(from), count(to), {}};
    const int kind = below(4);  // a function of either end, or whatever
    std::vector<int> image(static_cast<std::size_t>(std::max(table.rows, table.columns)));
    for (int& i : image) i = below(kind == 0 ? table.columns : table.rows);
    for (int r = 0; r < table.rows; ++r) {
      for (int c = 0; c < table.columns; ++c) {
        bool allowed = chance(85);
        if (kind == 0) allowed = image[static_cast<std::size_t>(r)] == c;
        if (kind == 1) allowed = image[static_cast<std::size_t>(c)] == r;
        table.values.push_back(allowed ? below(20) : kInfinity);
      }
    }
    ProblemEdge edge = {
        .from = from, .to = to, .cost_table = problem_.add_table(table), .uses = {}};
    if (limited && chance(25)) {
      for (double& value : table.values) value = below(8);
      edge.uses.push_back({0, 1 + below(problem_.horizon), problem_.add_table(table)});
      if (chance(20)) edge.cost_table = -1;
    }
    problem_.edges.push_back(edge);
  }

  void set_limit() {
    std::vector<int> choices;
    for (const ProblemNode& node : problem_.nodes) {
      choices.push_back(below(static_cast<int>(node.cost.size())));
    }
    problem_.use_limit = std::floor(evaluate(problem_, choices).peak_use * (70 + below(40)) / 100);
  }

  std::mt19937 random_;
  Problem problem_;
};

struct Counts {
  int folded = 0, feasible = 0, infeasible = 0, bound_by_memory = 0;
};

void check(const Problem& problem, Counts& counts) {
  REQUIRE(verify(problem).ok());
  const Result<Solution> truth = solve_exhaustive(problem);
  REQUIRE(truth.ok());
  const Solution found = solve_dp(problem, {});
  REQUIRE(found.feasible == truth->feasible);
  if (found.feasible) {
    CHECK(found.cost == truth->cost);
    CHECK(found.lower_bound == found.cost);
    CHECK(evaluate(problem, found.choices).cost == found.cost);
    CHECK(evaluate(problem, found.choices).peak_use == found.peak_use);
    CHECK(found.peak_use <= problem.use_limit);
  } else {
    CHECK(found.lower_bound == kInfinity);
  }
  counts.feasible += found.feasible ? 1 : 0;
  counts.infeasible += found.feasible ? 0 : 1;
  counts.bound_by_memory += found.feasible && found.cost > truth->unlimited_lower_bound ? 1 : 0;

  const std::optional<solver::Presolved> less = solver::presolve(problem);
  if (!less) return;
  ++counts.folded;
  REQUIRE(verify(less->problem).ok());
  CHECK(less->problem.nodes.size() < problem.nodes.size());
  const Result<Solution> folded = solve_exhaustive(less->problem);
  REQUIRE(folded.ok());
  REQUIRE(folded->feasible == truth->feasible);
  if (!folded->feasible) return;
  CHECK(folded->cost == truth->cost);
  // All that is left of a choice lies in the folded one: cost and peak agree, for any choices.
  std::mt19937 random(17);
  for (int draw = 0; draw < 5; ++draw) {
    std::vector<int> choices;
    for (const ProblemNode& node : less->problem.nodes) {
      choices.push_back(static_cast<int>(random() % node.cost.size()));
    }
    const Evaluation before = evaluate(problem, solver::lift(*less, choices));
    const Evaluation after = evaluate(less->problem, choices);
    CHECK(before.cost == after.cost);
    CHECK(before.peak_use == after.peak_use);
    CHECK(before.peak_time == after.peak_time);
  }
}

}  // namespace

TEST_CASE("Folded problems have the same optimum", "[presolve]") {
  Counts counts;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    INFO("seed " << seed);
    check(Generator(seed).make(seed % 2 == 1, 8), counts);
  }
  // The family is worth something only if all of this happens.
  CHECK(counts.folded > 800);
  CHECK(counts.feasible > 800);
  CHECK(counts.infeasible > 100);
  CHECK(counts.bound_by_memory > 100);
}

// Costs and uses are whole numbers here, so nothing is rounded.
TEST_CASE("The IOPDDL form has the same optimum", "[presolve]") {
  int feasible = 0, with_edge_uses = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Problem problem = Generator(seed).make(seed % 4 != 0, 6);
    problem.base_use = seed % 3;
    const Result<IopddlProblem> read = parse_iopddl(problem_to_iopddl(problem, "p"), "p.json");
    REQUIRE(read);
    const Result<Solution> truth = solve_exhaustive(problem);
    REQUIRE(truth);
    const Solution found = solve_dp(read->problem, {});
    REQUIRE(found.feasible == truth->feasible);
    for (const ProblemEdge& edge : problem.edges) with_edge_uses += edge.uses.empty() ? 0 : 1;
    if (!found.feasible) continue;
    ++feasible;
    CHECK(found.cost == truth->cost);
    // The first nodes are the problem's.
    std::vector<int> choices = found.choices;
    choices.resize(problem.nodes.size());
    CHECK(evaluate(problem, choices).cost == truth->cost);
    CHECK(evaluate(problem, choices).peak_use <= problem.use_limit);
  }
  CHECK(feasible > 100);
  CHECK(with_edge_uses > 100);
}

TEST_CASE("A chain of equal choices is one node", "[presolve]") {
  Problem problem;
  problem.horizon = 50;
  const int same = problem.add_table({2, 2, {0, kInfinity, kInfinity, 0}});
  for (int n = 0; n < 50; ++n) {
    const double cost = n;
    problem.nodes.push_back({.name = "", .cost = {cost, cost + 1}, .uses = {}});
    problem.nodes.back().uses.push_back({n, n + 1, {4, 2}});
    if (n > 0) problem.edges.push_back({.from = n - 1, .to = n, .cost_table = same, .uses = {}});
  }
  problem.use_limit = 3;
  const std::optional<solver::Presolved> less = solver::presolve(problem);
  REQUIRE(less);
  CHECK(less->problem.nodes.size() == 1);
  CHECK(less->problem.edges.empty());
  CHECK(less->problem.nodes[0].cost == std::vector<double>{1225, 1275});
  const Solution found = solve_dp(problem, {});
  CHECK(found.cost == 1275);
  CHECK(found.choices == std::vector<int>(50, 1));
}

TEST_CASE("Where nothing is forbidden nothing is folded", "[presolve]") {
  Problem problem;
  const int table = problem.add_table({2, 2, {0, 1, 1, 0}});
  problem.nodes = {{.name = "", .cost = {1, 2}, .uses = {}},
                   {.name = "", .cost = {2, 1}, .uses = {}}};
  problem.edges = {{.from = 0, .to = 1, .cost_table = table, .uses = {}}};
  CHECK_FALSE(solver::presolve(problem));
}

}  // namespace autopar::presolve_test
