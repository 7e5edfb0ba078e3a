#include "solve/bound/multipliers.hpp"

#include <algorithm>
#include <cmath>

#include "solve/plans/repair.hpp"

namespace autopar::solver {
namespace {

// Direction of the next step: what the rows' uses exceed their capacities by, where that can
// change a multiplier, with a part of the direction before.
Vector direction(const Network& net, const Dual& dual, const Vector& uses, const Vector& before) {
  Vector result(uses.size(), 0.0);
  for (std::size_t r = 0; r < uses.size(); ++r) {
    const double excess = uses[r] - net.capacity[r] + (before.empty() ? 0.0 : 0.5 * before[r]);
    if (excess > 0 || dual.multipliers()[r] > 0) result[r] = excess;
  }
  return result;
}

double squared(const Vector& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return sum;
}

}  // namespace

void tighten_rows(const Network& net, Dual& dual, double& cutoff, Incumbent& best, Budget& budget,
                  int most_steps, StepReach reach_of, Pool* pool) {
  Dual top = dual;
  Vector before;
  double reach = reach_of.first;
  int without_gain = 0;
  double repair_work = 0;
  const double work_before = budget.work;
  for (int step = 0; step < most_steps && !budget.over(); ++step) {
    dual.pass(cutoff);
    budget.add(dual.work_per_pass() + 10 * static_cast<double>(net.capacity.size()));
    const bool done = dual.exhausted() || dual.bound() >= cutoff;
    const double gain = dual.bound() - top.bound();
    const double gap = std::min(cutoff, std::abs(top.bound()) * (1 + reach) + 1e-300) - top.bound();
    without_gain = gain > 0.05 * gap ? 0 : without_gain + 1;
    if (gain > 0.3 * gap) reach = std::min(1.0, 1.5 * reach);
    if (gain > 0 || done || step == 0) top = dual;
    if (done) break;
    std::vector<int> labels = dual.decode();
    dual.improve(labels);
    if (pool != nullptr) pool->add(labels);
    const Vector uses = uses_of(net, labels);
    const double violation = squared(direction(net, dual, uses, {}));
    before = violation > 0 ? direction(net, dual, uses, before) : Vector();
    // Where the parts of the direction cancel out, it says nothing about how far to go.
    const double norm = std::max(violation, squared(before));
    // Repairs get a part of the work, and are for multipliers that have settled a little.
    const double allowed = (pool != nullptr ? 0.1 : 0.4) * (budget.work - work_before);
    if (norm == 0 || (step % 4 == 3 && repair_work <= allowed) || step + 1 == most_steps) {
      double work = 0;
      const bool fits = repair(net, labels, std::max(allowed, 2 * dual.work_per_pass()), work);
      repair_work += work;
      budget.add(work);
      if (fits && pool != nullptr) pool->add_fitting(labels);
      if (fits) keep_if_better(net, std::move(labels), budget, cutoff, best);
    }
    if (without_gain >= 6) {
      reach *= 0.5;
      without_gain = 0;
      if (reach < reach_of.last) break;
    }
    if (norm == 0) continue;
    const double aim = std::min(cutoff, top.bound() + reach * std::max(std::abs(top.bound()), 1.0));
    // Never so far that sums of the old and the new size would lose digits.
    const double length = std::clamp(aim - dual.bound(), 0.0, 100 * (aim - top.bound())) / norm;
    Vector multipliers = dual.multipliers();
    for (std::size_t r = 0; r < multipliers.size(); ++r) {
      multipliers[r] = std::max(0.0, multipliers[r] + length * before[r]);
    }
    dual.set_multipliers(multipliers);
  }
  dual = std::move(top);
}

}  // namespace autopar::solver
