// Labellings under the memory limit that take each node's label from one of those met before.
#include "solve/plans/mix.hpp"

#include "problem_checks.hpp"
#include "solve/network/arrangement.hpp"
#include "solve/network/reduce.hpp"
#include "solve/plans/repair.hpp"
#include "solve/plans/sweep.hpp"

namespace autopar::testing {
namespace {

using namespace solver;

bool fits(const Network& net, const std::vector<int>& labels) {
  const Vector uses = uses_of(net, labels);
  for (std::size_t r = 0; r < uses.size(); ++r) {
    if (uses[r] > net.capacity[r]) return false;
  }
  return true;
}

struct FirstSweep {
  double work_before = 0;
  // Of its labellings once they are repaired, up to the first that fits as it is.
  std::vector<double> values;
};

FirstSweep first_sweep(const Network& net, const Dual& dual) {
  FirstSweep result;
  const std::unique_ptr<Network> child = dual.survivors(false);
  if (!child->impossible) reduce(*child);
  if (child->impossible) return result;
  result.work_before = child->algebra.work();
  double work = 0;
  for (const auto& found :
       sweep(*child, narrow_order(*child), child->multiplier, kInfinity, 32, work)) {
    const std::vector<int> lifted = lift(*child, found);
    std::vector<int> labels(net.nodes.size(), 0);
    for (std::size_t n = 0; n < lifted.size(); ++n) {
      labels[static_cast<std::size_t>(child->origin[n])] = lifted[n];
    }
    const bool fitted = fits(net, labels);
    const bool kept = fitted || repair(net, labels, 1e7, work);
    result.values.push_back(kept ? value_of(net, labels) : kInfinity);
    if (fitted) break;
  }
  return result;
}

}  // namespace

TEST_CASE("every labelling of a sweep is repaired, and the best one taken", "[mix]") {
  int tried = 0, late = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed + 500000);
    Recipe recipe;
    recipe.topology = seed % 2 == 0 ? Topology::kTree : Topology::kChain;
    recipe.nodes = 15 + draw.below(25);
    recipe.most_choices = 3;
    recipe.ties = draw.chance(0.3);
    recipe.uses = true;
    recipe.edge_uses = draw.chance(0.5);
    recipe.tightness = 0.3 * draw.unit();
    const Problem problem = draw.make(recipe);
    const std::unique_ptr<Network> net = build_network(problem, maximal_times(problem));
    if (net->impossible || net->capacity.size() < 3) continue;
    Dual dual(*net);
    Vector prices;
    for (std::size_t r = 0; r < net->capacity.size(); ++r) prices.push_back(0.02 * draw.unit());
    dual.set_multipliers(prices);
    for (int pass = 0; pass < 5; ++pass) dual.pass(kInfinity);

    const FirstSweep sweep = first_sweep(*net, dual);
    if (sweep.values.empty()) continue;
    Budget budget;
    budget.work_limit = sweep.work_before + 1;  // enough to begin one sweep
    const Incumbent mixed = best_mix(*net, dual, kInfinity, budget);
    const double best = *std::min_element(sweep.values.begin(), sweep.values.end());
    CHECK(mixed.value == best);
    if (best < kInfinity) CHECK(fits(*net, mixed.labels));
    ++tried;
    const auto few = static_cast<std::ptrdiff_t>(std::min<std::size_t>(2, sweep.values.size()));
    if (best < *std::min_element(sweep.values.begin(), sweep.values.begin() + few)) ++late;
  }
  // Often it is not one of the first two.
  CHECK(tried > 300);
  CHECK(late > 40);
}

}  // namespace autopar::testing
