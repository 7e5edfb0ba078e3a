// The exact search under a memory limit for narrow networks, held to trying all labellings.
#include "solve/windows/windows.hpp"

#include "problem_checks.hpp"
#include "solve/windows/row_plan.hpp"

namespace autopar::solver::windows_test {

using namespace testing;

namespace {

// The least value of a labelling within the capacities; infinite where there is none.
double least_value(const Network& net) {
  double best = kInfinity;
  std::vector<int> labels(net.nodes.size(), 0);
  while (true) {
    const Vector uses = uses_of(net, labels);
    bool fits = true;
    for (std::size_t r = 0; r < uses.size(); ++r) fits = fits && uses[r] <= net.capacity[r];
    if (fits) best = std::min(best, value_of(net, labels));
    std::size_t n = 0;
    while (n < labels.size() && ++labels[n] == net.label_count(static_cast<int>(n)))
      labels[n++] = 0;
    if (n == labels.size()) return best;
  }
}

// Equal layers of a few nodes; each node keeps something for good and something for a while.
Problem equal_layers(Generator& draw, int layers, int width) {
  Problem problem;
  problem.horizon = layers * width + 1;
  std::vector<ProblemNode> kinds(static_cast<std::size_t>(width));
  std::vector<Vector> passing;
  for (ProblemNode& kind : kinds) {
    const int choices = 2 + draw.below(2);
    Vector kept, passes;
    for (int c = 0; c < choices; ++c) {
      kind.cost.push_back(1 + draw.below(12));
      kept.push_back(draw.below(9));
      passes.push_back(draw.below(9));
    }
    kind.uses.push_back({0, problem.horizon, kept});
    passing.push_back(passes);
  }
  for (int l = 0; l < layers * width; ++l) {
    const std::size_t k = static_cast<std::size_t>(l % width);
    problem.nodes.push_back(kinds[k]);
    problem.nodes.back().uses.push_back({l, std::min(l + 2, problem.horizon), passing[k]});
    if (l == 0) continue;
    CostTable table = {
        .rows = static_cast<int>(problem.nodes[static_cast<std::size_t>(l) - 1].cost.size()),
        .columns = static_cast<int>(kinds[k].cost.size()),
        .values = {}};
    for (int i = 0; i < table.rows * table.columns; ++i)
      table.values.push_back((i * 7 + l % width) % 4);
    problem.edges.push_back({l - 1, l, problem.add_table(table), {}});
    if (l >= width && draw.chance(0.3)) {
      EdgeUse use = {.begin = l, .end = l + 1, .table = problem.edges.back().cost_table};
      problem.edges.back().uses.push_back(use);
    }
  }
  const std::vector<int> first(problem.nodes.size(), 0), second(problem.nodes.size(), 1);
  const double one = evaluate(problem, first).peak_use, other = evaluate(problem, second).peak_use;
  problem.use_limit =
      std::floor(std::min(one, other) + (0.1 + 0.8 * draw.unit()) * std::abs(one - other));
  return problem;
}

constexpr int kAlike = 30, kOfAlike = 8, kOfHub = 5;  // nodes that are alike, and choices

// Nodes that are alike around one, as tables of an embedding are around what joins their rows: what
// takes less memory costs nearly as much more, by what that one chooses.
Problem alike_around_one(Generator& draw) {
  Problem problem;
  problem.horizon = 1;
  problem.nodes.push_back({.name = "hub", .cost = {}, .uses = {}});
  NodeUse use = {.begin = 0, .end = 1, .bytes = {}};
  for (int c = 0; c < kOfAlike; ++c) use.bytes.push_back(20 + draw.below(400));
  CostTable table = {.rows = kOfHub, .columns = kOfAlike, .values = {}};
  for (int hub = 0; hub < kOfHub; ++hub) {
    problem.nodes[0].cost.push_back(draw.below(100));
    for (const double bytes : use.bytes) table.values.push_back(500 - bytes + draw.below(20));
  }
  problem.add_table(table);
  for (int n = 1; n <= kAlike; ++n) {
    problem.nodes.push_back({.name = "", .cost = Vector(kOfAlike, 0.0), .uses = {use}});
    problem.edges.push_back({0, n, 0, {}});
  }
  problem.use_limit = kAlike * (100 + draw.below(200));
  return problem;
}

// Node after node, by what they use together.
double least_by_uses(const Problem& problem) {
  const Vector& bytes = problem.nodes[1].uses[0].bytes;
  const auto uses = static_cast<std::size_t>(problem.use_limit) + 1;
  double least = kInfinity;
  for (int hub = 0; hub < kOfHub; ++hub) {
    Vector costs(uses, kInfinity);
    costs[0] = problem.nodes[0].cost[static_cast<std::size_t>(hub)];
    for (int n = 0; n < kAlike; ++n) {
      Vector next(uses, kInfinity);
      for (std::size_t used = 0; used < uses; ++used) {
        for (int c = 0; c < kOfAlike && costs[used] < kInfinity; ++c) {
          const auto with = used + static_cast<std::size_t>(bytes[static_cast<std::size_t>(c)]);
          if (with >= uses) continue;
          next[with] = std::min(next[with], costs[used] + problem.tables[0].at(hub, c));
        }
      }
      costs = std::move(next);
    }
    least = std::min(least, *std::min_element(costs.begin(), costs.end()));
  }
  return least;
}

// Multipliers that nobody has tuned: a bound they give is poor, but it must hold.
Dual some_dual(const Network& net, Generator& draw, double cutoff) {
  Dual dual(net);
  Vector multipliers(net.capacity.size(), 0.0);
  for (double& multiplier : multipliers) {
    if (draw.chance(0.5)) multiplier = 0.4 * draw.unit();
  }
  dual.set_multipliers(multipliers);
  for (int k = draw.below(4); k >= 0; --k) dual.pass(cutoff);
  return dual;
}

// True if something below the cutoff was there to be found.
bool check_windows(const Problem& problem, Generator& draw) {
  const std::unique_ptr<Network> net = build_network(problem, maximal_times(problem));
  if (net->impossible || net->capacity.empty()) return false;
  const double best = least_value(*net);
  const double cutoff = best < kInfinity ? best * (0.9 + 0.4 * draw.unit()) + 1e-3 : 1e3;
  Budget budget;
  const Dual dual = some_dual(*net, draw, cutoff);
  const Found found = search_windows(*net, dual, cutoff, budget);
  if (best >= cutoff) {
    CHECK(found.value == kInfinity);
    CHECK(found.bound >= cutoff * (1 - 1e-12));
    return false;
  }
  REQUIRE(found.value < cutoff);
  CHECK(close(found.value, best));
  CHECK(close(found.bound, best));
  REQUIRE(found.labels.size() == net->nodes.size());
  CHECK(close(value_of(*net, found.labels), best));
  const Vector uses = uses_of(*net, found.labels);
  for (std::size_t r = 0; r < uses.size(); ++r) CHECK(uses[r] <= net->capacity[r]);
  return true;
}

}  // namespace

TEST_CASE("windows find the optimum whatever the multipliers", "[windows]") {
  int found = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    Generator draw(seed + 700000);
    Recipe recipe;
    recipe.topology = kTopologies[seed % 7];
    recipe.nodes = 2 + draw.below(5);
    recipe.most_choices = 4;
    recipe.parallel = draw.chance(0.2);
    recipe.forbidden = draw.chance(0.3);
    recipe.ties = draw.chance(0.5);
    recipe.uses = true;
    recipe.edge_uses = draw.chance(0.5);
    recipe.tightness = 0.7 * draw.unit();
    INFO("seed " << seed);
    found += check_windows(draw.make(recipe), draw) ? 1 : 0;
  }
  CHECK(found > 500);
}

TEST_CASE("windows find the optimum of equal layers", "[windows]") {
  int found = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    Generator draw(seed + 800000);
    INFO("seed " << seed);
    const int width = 2 + draw.below(2);
    found += check_windows(equal_layers(draw, width == 2 ? 4 : 3, width), draw) ? 1 : 0;
  }
  CHECK(found > 100);
}

TEST_CASE("dp equals the exhaustive search on equal layers under a limit", "[windows]") {
  int feasible = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    Generator draw(seed + 900000);
    INFO("seed " << seed);
    feasible += check_against_exhaustive(equal_layers(draw, 3, 3)).feasible ? 1 : 0;
  }
  CHECK(feasible > 50);
}

TEST_CASE("dp proves what many alike nodes around one choose under a limit", "[windows]") {
  Generator draw(5);
  int feasible = 0;
  for (int i = 0; i < 20; ++i) {
    INFO("problem " << i);
    const Problem problem = alike_around_one(draw);
    const Solution found = solve_dp(problem, {});
    CHECK(found.end == SolveEnd::kProven);
    CHECK(found.cost == least_by_uses(problem));
    if (!found.feasible) continue;
    ++feasible;
    CHECK(evaluate(problem, found.choices).peak_use <= problem.use_limit);
  }
  CHECK(feasible > 15);
}

TEST_CASE("a row plan follows every row", "[windows]") {
  for (unsigned seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed);
    const int rows = 1 + draw.below(6);
    Vector capacity, multiplier;
    for (int r = 0; r < rows; ++r) {
      capacity.push_back(10 + draw.below(20));
      multiplier.push_back(draw.below(3));
    }
    std::vector<std::vector<RowsUsed>> uses(static_cast<std::size_t>(1 + draw.below(6)));
    std::vector<Vector> bytes;
    for (std::vector<RowsUsed>& step : uses) {
      bytes.emplace_back();
      for (int u = draw.below(3); u > 0; --u) {
        const int begin = draw.below(rows);
        const int end = begin + 1 + draw.below(rows - begin);
        step.push_back({{{begin, end}}});
        if (end + 1 < rows) step.back().rows.emplace_back(end + 1, rows);
        bytes.back().push_back(draw.below(9));
      }
    }
    const RowPlan plan = plan_rows(uses, capacity, multiplier);
    Vector room = capacity, variables = {0.0};
    for (std::size_t i = 0; i < uses.size(); ++i) {
      const RowPlan::Step& step = plan.steps[i];
      Vector parts;
      for (const RowPlan::Part& part : step.parts) {
        double left = variables[static_cast<std::size_t>(part.from)];
        for (int u : part.uses) left -= bytes[i][static_cast<std::size_t>(u)];
        parts.push_back(left);
      }
      variables.clear();
      for (const RowPlan::Variable& variable : step.variables) {
        double least = kInfinity;
        for (const auto& [part, offset] : variable.least_of) {
          least = std::min(least, parts[static_cast<std::size_t>(part)] + offset);
        }
        variables.push_back(least);
      }
      for (std::size_t u = 0; u < uses[i].size(); ++u) {
        for (const auto& [begin, end] : uses[i][u].rows) {
          for (int r = begin; r < end; ++r) room[static_cast<std::size_t>(r)] -= bytes[i][u];
        }
      }
      // The least room of all rows is that of the tightest class.
      double least = kInfinity;
      for (std::size_t c = 0; c < step.variable_of.size(); ++c) {
        least = std::min(least,
                         step.offset[c] + variables[static_cast<std::size_t>(step.variable_of[c])]);
      }
      CHECK(least == *std::min_element(room.begin(), room.end()));
    }
  }
}

}  // namespace autopar::solver::windows_test
