// The best multipliers, held to what all labellings together allow.
#include "solve/bound/cuts.hpp"

#include "problem_checks.hpp"

namespace autopar::testing {
namespace {

using namespace solver;

double value_at(const std::vector<Cut>& cuts, const Vector& multipliers) {
  double least = kInfinity;
  for (const Cut& cut : cuts) {
    double value = cut.cost;
    for (std::size_t r = 0; r < multipliers.size(); ++r) value += multipliers[r] * cut.excess[r];
    least = std::min(least, value);
  }
  return least;
}

struct Line {  // a x + b y = c
  double a = 0, b = 0, c = 0;
};

// The largest value over the box, by looking at every corner of the pieces.
double best_of_corners(const std::vector<Cut>& cuts, const Vector& most) {
  std::vector<Line> lines = {{1, 0, 0}, {1, 0, most[0]}, {0, 1, 0}, {0, 1, most[1]}};
  for (const Cut& one : cuts) {
    for (const Cut& other : cuts) {
      lines.push_back({one.excess[0] - other.excess[0], one.excess[1] - other.excess[1],
                       other.cost - one.cost});
    }
  }
  double best = -kInfinity;
  for (const Line& one : lines) {
    for (const Line& other : lines) {
      const double determinant = one.a * other.b - one.b * other.a;
      if (std::abs(determinant) < 1e-9) continue;
      const double x = (one.c * other.b - one.b * other.c) / determinant;
      const double y = (one.a * other.c - one.c * other.a) / determinant;
      if (x < -1e-9 || y < -1e-9 || x > most[0] + 1e-9 || y > most[1] + 1e-9) continue;
      best = std::max(best, value_at(cuts, {x, y}));
    }
  }
  return best;
}

std::vector<Cut> all_cuts(const Network& net) {
  std::vector<Cut> cuts;
  std::vector<int> labels(net.nodes.size(), 0);
  while (true) {
    Cut cut = {.cost = value_of(net, labels), .excess = uses_of(net, labels)};
    for (std::size_t r = 0; r < cut.excess.size(); ++r) cut.excess[r] -= net.capacity[r];
    if (cut.cost < kInfinity) cuts.push_back(std::move(cut));
    std::size_t n = 0;
    while (n < labels.size() && ++labels[n] == net.label_count(static_cast<int>(n)))
      labels[n++] = 0;
    if (n == labels.size()) return cuts;
  }
}

bool some_fit(const std::vector<Cut>& cuts) {
  return std::any_of(cuts.begin(), cuts.end(), [](const Cut& cut) {
    return std::all_of(cut.excess.begin(), cut.excess.end(), [](double e) { return e <= 0; });
  });
}

}  // namespace

TEST_CASE("the master problem's multipliers are the best in their box", "[cuts]") {
  for (unsigned seed = 0; seed < 600; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed);
    std::vector<Cut> cuts;
    for (int k = 1 + draw.below(6); k > 0; --k) {
      cuts.push_back(
          {.cost = 1.0 + draw.below(20), .excess = {draw.below(21) - 10.0, draw.below(21) - 10.0}});
    }
    const Vector most = {0.5 + draw.below(4), 0.5 + draw.below(4)};
    const Master master = solve_master(cuts, most);
    REQUIRE(master.multipliers.size() == 2);
    CHECK(master.value == Approx(best_of_corners(cuts, most)));
    CHECK(value_at(cuts, master.multipliers) == Approx(master.value));
    for (std::size_t r = 0; r < 2; ++r) {
      CHECK(master.multipliers[r] >= 0);
      CHECK(master.multipliers[r] <= most[r] * (1 + 1e-9));
    }
  }
}

TEST_CASE("the multipliers found are as good as all labellings allow", "[cuts]") {
  int reached = 0, tried = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed + 300000);
    Recipe recipe;
    recipe.topology = seed % 2 == 0 ? Topology::kChain : kTopologies[seed % 7];
    recipe.nodes = 2 + draw.below(5);
    recipe.most_choices = 4;
    recipe.forbidden = draw.chance(0.3);
    recipe.ties = draw.chance(0.3);
    recipe.uses = true;
    recipe.edge_uses = draw.chance(0.5);
    recipe.tightness = 0.7 * draw.unit();
    const Problem problem = draw.make(recipe);
    const std::unique_ptr<Network> net = build_network(problem, maximal_times(problem));
    if (net->impossible || net->capacity.empty()) continue;
    const std::vector<Cut> cuts = all_cuts(*net);
    if (!some_fit(cuts)) continue;
    const Master best = solve_master(cuts, Vector(net->capacity.size(), 1e4));
    Dual dual(*net);
    Budget budget;
    std::vector<std::vector<int>> met;
    const bool found = find_best_multipliers(*net, dual, budget, met);
    ++tried;
    // It is a bound in any case.
    const double slack = 1e-9 * (1 + std::abs(best.value));
    CHECK(dual.bound() <= best.value + slack);
    CHECK(dual.bound() <= value_at(cuts, dual.multipliers()) + slack);
    for (const std::vector<int>& labels : met) CHECK(value_of(*net, labels) < kInfinity);
    if (!found) continue;
    ++reached;
    CHECK(dual.bound() >= best.value - 1e-4 * std::abs(best.value) - 1e-9);
  }
  CHECK(tried > 150);
  CHECK(2 * reached > tried);
}

TEST_CASE("too many rows are not for cutting planes", "[cuts]") {
  Problem problem;
  problem.horizon = 60;
  for (int t = 0; t < problem.horizon; ++t) {
    ProblemNode node;
    node.cost = {1, 2};
    node.uses = {{t, t + 1, {5, 1}}};
    problem.nodes.push_back(node);
  }
  problem.use_limit = 3;
  const std::unique_ptr<Network> net = build_network(problem, maximal_times(problem));
  Dual dual(*net);
  Budget budget;
  std::vector<std::vector<int>> met;
  REQUIRE(net->capacity.size() > 12);
  CHECK_FALSE(find_best_multipliers(*net, dual, budget, met));
}

}  // namespace autopar::testing
