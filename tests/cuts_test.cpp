// The best multipliers, held to what all labellings together allow.
#include "problem_checks.hpp"
#include "solve/bound/master.hpp"
#include "solve/limit/prices.hpp"

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

// Each node's cheapest label, whatever it uses.
std::vector<int> cheapest(const Network& net) {
  std::vector<int> labels;
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    const Vector& cost = net.cost(static_cast<int>(n));
    const auto least = std::min_element(cost.begin(), cost.end());
    labels.push_back(static_cast<int>(least - cost.begin()));
  }
  return labels;
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
    Budget budget;
    Race race(problem, budget);
    race.left_out = bit_of(SolveStage::kFold);
    const AllTimes all(race);
    const std::vector<int> start = cheapest(*net);
    if (all.overfull_rows(start).empty()) continue;
    Pricer pricer(race, all);
    const Priced found = find_prices(all, start, pricer, race);
    ++tried;
    // It is a bound in any case.
    const Solution truth = solve_exhaustive(problem).value();
    REQUIRE(truth.feasible);
    CHECK(found.bound <= truth.cost * (1 + 1e-9));
    for (const Met& met : found.met) CHECK(close(met.cost, value_of(*net, met.labels)));
    reached += found.bound >= best.value - 0.01 * std::abs(best.value) - 1e-9 ? 1 : 0;
  }
  CHECK(tried > 100);
  CHECK(2 * reached > tried);
}

}  // namespace autopar::testing
