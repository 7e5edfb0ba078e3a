#include "solve/bound/subgradient.hpp"

#include <algorithm>
#include <cmath>

#include "solve/effort.hpp"
#include "solve/plans/repair.hpp"

namespace autopar::solver {
namespace {

using namespace effort::subgradient;

double squared(const Vector& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return sum;
}

// Puts the labels last, where they were known too; of more than a few, the first go.
void note(const std::vector<int>& labels, std::vector<std::vector<int>>& met) {
  const auto same = std::find(met.begin(), met.end(), labels);
  if (same != met.end()) {
    std::rotate(same, same + 1, met.end());
    return;
  }
  if (met.size() == kMostMet) met.erase(met.begin());
  met.push_back(labels);
}

}  // namespace

Subgradient::Subgradient(const Network& net, Dual& dual, Budget& budget, StepReach reach,
                         bool few_rows)
    : net_(net),
      dual_(dual),
      top_(dual),
      budget_(budget),
      reach_of_(reach),
      few_rows_(few_rows),
      reach_(reach.first),
      active_(net.capacity.size(), few_rows ? 0 : 1) {}

bool Subgradient::pass(double cutoff) {
  if (reach_ < reach_of_.last) return false;
  dual_.pass(cutoff);
  budget_.add(dual_.work_per_pass() + kRowWork * static_cast<double>(net_.capacity.size()));
  note_gain(cutoff);
  if (dual_.exhausted() || dual_.bound() >= cutoff) return false;
  labels_ = dual_.decode_and_improve();
  uses_ = uses_of(net_, labels_);
  return true;
}

void Subgradient::note_gain(double cutoff) {
  const double gain = dual_.bound() - top_.bound();
  const double aim = std::min(cutoff, std::abs(top_.bound()) * (1 + reach_) + 1e-300);
  const double hoped = aim - top_.bound();
  without_gain_ = gain > kGain * hoped ? 0 : without_gain_ + 1;
  if (gain > kGoodGain * hoped) reach_ = std::min(1.0, kFurther * reach_);
  if (gain > 0 || first_ || dual_.exhausted() || dual_.bound() >= cutoff) top_ = dual_;
  first_ = false;
  if (without_gain_ < effort::subgradient::kInVain) return;
  reach_ *= 0.5;
  without_gain_ = 0;
}

// The worst row of every stretch that overflows, where it is worse than those that are active.
void Subgradient::activate() {
  std::size_t worst = 0;
  double most = 0, active_most = 0;
  for (std::size_t r = 0; r <= uses_.size(); ++r) {
    const double over = r < uses_.size() ? uses_[r] - net_.capacity[r] : 0;
    if (over > 0) {
      if (active_[r]) active_most = std::max(active_most, over);
      if (over > most) {
        most = over;
        worst = r;
      }
      continue;
    }
    if (most > kWorse * active_most) active_[worst] = 1;
    most = active_most = 0;
  }
}

// What the rows' uses exceed their capacities by, where that can change a multiplier, with a part
// of the direction before.
Vector Subgradient::direction(const Vector& before) const {
  Vector result(uses_.size(), 0.0);
  for (std::size_t r = 0; r < uses_.size(); ++r) {
    if (!active_[r]) continue;
    const double excess =
        uses_[r] - net_.capacity[r] + (before.empty() ? 0.0 : kMomentum * before[r]);
    if (excess > 0 || dual_.multipliers()[r] > 0) result[r] = excess;
  }
  return result;
}

bool Subgradient::step(double cutoff) {
  if (few_rows_) activate();
  const double violation = squared(direction({}));
  before_ = violation > 0 ? direction(before_) : Vector();
  // Where the parts of the direction cancel out, it says nothing about how far to go.
  const double norm = std::max(violation, squared(before_));
  if (norm == 0) return false;
  const double aim =
      std::min(cutoff, top_.bound() + reach_ * std::max(std::abs(top_.bound()), 1.0));
  const double length =
      std::clamp(aim - dual_.bound(), 0.0, kLongest * (aim - top_.bound())) / norm;
  Vector multipliers = dual_.multipliers();
  for (std::size_t r = 0; r < multipliers.size(); ++r) {
    multipliers[r] = std::max(0.0, multipliers[r] + length * before_[r]);
  }
  dual_.set_multipliers(multipliers);
  return true;
}

double Subgradient::finish(double cutoff) {
  dual_ = std::move(top_);
  return dual_.exhausted() ? cutoff : std::min(cutoff, dual_.bound());
}

void tighten_rows(const Network& net, Dual& dual, double& cutoff, Incumbent& best, Budget& budget,
                  int most_steps, StepReach reach, std::vector<std::vector<int>>* met) {
  Subgradient steps(net, dual, budget, reach, false);
  double repair_work = 0;
  const double work_before = budget.work;
  for (int step = 0; step < most_steps && !budget.over() && steps.pass(cutoff); ++step) {
    std::vector<int> labels = steps.favoured();
    if (met != nullptr) note(labels, *met);
    const bool moved = steps.step(cutoff);
    const double allowed = (met != nullptr ? kFewRepairs : kRepairs) * (budget.work - work_before);
    const bool due = step % kStepsToRepair == kStepsToRepair - 1 && repair_work <= allowed;
    if (moved && !due && step + 1 < most_steps) continue;
    double work = 0;
    const bool fits = repair(net, labels, std::max(allowed, 2 * dual.work_per_pass()), work);
    repair_work += work;
    budget.add(work);
    if (fits) keep_if_better(net, std::move(labels), cutoff, best);
  }
  steps.finish(cutoff);
}

}  // namespace autopar::solver
