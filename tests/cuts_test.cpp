// The best multipliers, held to what all labellings together allow.
#include "problem_checks.hpp"
#include "solve/bound/master.hpp"
#include "solve/limit/prices.hpp"

namespace autopar::solver::cuts_test {

using namespace testing;

namespace {

double excess_of(const Cut& cut, int row) {
  double sum = 0;
  for (const Cut::Excess& its : cut.excess) sum += its.row == row ? its.amount : 0;
  return sum;
}

// The sum over the parts of the least.
double value_at(const std::vector<Cut>& cuts, const Vector& multipliers) {
  Vector least;
  for (const Cut& cut : cuts) {
    double value = cut.cost;
    for (const Cut::Excess& its : cut.excess) value += multipliers[at(its.row)] * its.amount;
    if (at(cut.part) == least.size()) least.push_back(value);
    least.back() = std::min(least.back(), value);
  }
  double sum = 0;
  for (double value : least) sum += value;
  return sum;
}

struct Line {  // a x + b y = c
  double a = 0, b = 0, c = 0;
};

// The largest value over the box, by looking at every corner of the pieces.
double best_of_corners(const std::vector<Cut>& cuts, const Vector& most) {
  std::vector<Line> lines = {{1, 0, 0}, {1, 0, most[0]}, {0, 1, 0}, {0, 1, most[1]}};
  for (const Cut& one : cuts) {
    for (const Cut& other : cuts) {
      lines.push_back({excess_of(one, 0) - excess_of(other, 0),
                       excess_of(one, 1) - excess_of(other, 1), other.cost - one.cost});
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
    Cut cut = {.cost = value_of(net, labels)};
    const Vector uses = uses_of(net, labels);
    for (std::size_t r = 0; r < uses.size(); ++r) {
      cut.excess.push_back({static_cast<int>(r), uses[r] - net.capacity[r]});
    }
    if (cut.cost < kInfinity) cuts.push_back(std::move(cut));
    std::size_t n = 0;
    while (n < labels.size() && ++labels[n] == net.label_count(static_cast<int>(n)))
      labels[n++] = 0;
    if (n == labels.size()) return cuts;
  }
}

bool some_fit(const std::vector<Cut>& cuts) {
  return std::any_of(cuts.begin(), cuts.end(), [](const Cut& cut) {
    return std::all_of(cut.excess.begin(), cut.excess.end(),
                       [](const Cut::Excess& its) { return its.amount <= 0; });
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
      cuts.push_back({.cost = 1.0 + draw.below(20),
                      .excess = {{0, draw.below(21) - 10.0}, {1, draw.below(21) - 10.0}}});
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

// Parts that share rows, with ties, zeros and units of all sizes.
std::vector<Cut> drawn_parts(Generator& draw, int parts, int rows) {
  const double cost_unit = std::pow(10.0, draw.below(9) - 4), unit = std::pow(10.0, draw.below(9));
  std::vector<Cut> cuts;
  for (int p = 0; p < parts; ++p) {
    for (int k = 1 + draw.below(5); k > 0; --k) {
      Cut cut = {.cost = cost_unit * draw.below(20), .part = p};
      for (int r = 0; r < rows; ++r) {
        double amount = draw.chance(0.4) ? draw.below(20) : 0;
        if (p == 0) amount -= 3.0 * parts;  // the room of all
        if (amount != 0) cut.excess.push_back({r, unit * amount});
      }
      cuts.push_back(std::move(cut));
    }
  }
  return cuts;
}

// The mix and the multipliers prove each other: both are worth the same.
void check_master(const std::vector<Cut>& cuts, const Vector& most, const Master& master) {
  REQUIRE(master.solved);
  double largest = 1e-300, cost = 0;
  for (const Cut& cut : cuts) largest += std::abs(cut.cost);
  Vector parts, excess(most.size(), 0.0), unit(most.size(), 1e-300);
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (at(cuts[i].part) == parts.size()) parts.push_back(0);
    CHECK(master.shares[i] >= 0);
    parts.back() += master.shares[i];
    cost += master.shares[i] * cuts[i].cost;
    for (const Cut::Excess& its : cuts[i].excess) {
      excess[at(its.row)] += master.shares[i] * its.amount;
      unit[at(its.row)] += std::abs(its.amount);
    }
  }
  for (double sum : parts) CHECK(sum == Approx(1).epsilon(1e-7));
  for (std::size_t r = 0; r < most.size(); ++r) {
    CHECK(master.multipliers[r] >= 0);
    CHECK(master.multipliers[r] <= most[r] * (1 + 1e-9));
    if (excess[r] > 1e-9 * unit[r]) cost += most[r] * excess[r];
  }
  CHECK(std::abs(cost - master.value) <= 1e-6 * largest);
  CHECK(std::abs(value_at(cuts, master.multipliers) - master.value) <= 1e-6 * largest);
}

TEST_CASE("the master problem of many parts", "[cuts]") {
  int mixed = 0, over = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed + 7000);
    const int parts = seed < 280 ? 1 + draw.below(40) : 400, rows = 1 + draw.below(12);
    const std::vector<Cut> cuts = drawn_parts(draw, parts, rows);
    double cost = 0, amount = 0;
    for (const Cut& cut : cuts) {
      cost = std::max(cost, cut.cost);
      for (const Cut::Excess& its : cut.excess) amount = std::max(amount, std::abs(its.amount));
    }
    const double each = (cost + 1e-9) / (amount + 1e-9);
    const Vector most(at(rows), each * std::pow(10.0, draw.below(6) - 2));
    const Master master = solve_master(cuts, most);
    check_master(cuts, most, master);
    for (double share : master.shares) mixed += share > 1e-6 && share < 1 - 1e-6 ? 1 : 0;
    for (std::size_t r = 0; r < most.size(); ++r) over += master.multipliers[r] > 0.99 * most[r];
    // Stopped early, it is still a mix.
    const Master early = solve_master(cuts, most, master.work / 2);
    CHECK(early.value >= master.value - 1e-6 * std::abs(master.value) - 1e-9 * cost);
  }
  CHECK(mixed > 300);
  CHECK(over > 30);
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

}  // namespace autopar::solver::cuts_test
