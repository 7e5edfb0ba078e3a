#include "solve/bound/find_prices.hpp"

#include <algorithm>
#include <cmath>

namespace autopar::solver {
namespace {

constexpr int kSteps = 600;
constexpr double kFirstReach = 0.5;  // how far above the best bound the steps aim, as a part of it
constexpr double kLastReach = 2e-5;
constexpr int kPatience = 6;          // steps without much gain before the aim is lowered
constexpr double kOfferedWork = 0.3;  // of all the work, for what `offer` does
constexpr double kSettled = 0.1;      // no labellings are offered while the aim is further off

class PriceSearch {
 public:
  PriceSearch(const Network& net, double cutoff, Budget& budget, const Offer& offer)
      : net_(net),
        cutoff_(cutoff),
        budget_(budget),
        offer_(offer),
        active_(net.capacity.size(), 0),
        dual_(net),
        top_(dual_) {}

  double run(Prices& prices) {
    const double work_before = budget_.work;
    double offered = 0;
    for (int step = 0; step < kSteps && reach_ > kLastReach && !budget_.over(); ++step) {
      dual_.pass(cutoff_);
      budget_.add(5 * dual_.work_per_pass() + 10 * static_cast<double>(net_.capacity.size()));
      note_gain(step == 0);
      if (dual_.exhausted() || dual_.bound() >= cutoff_) break;
      std::vector<int> labels = dual_.decode();
      dual_.improve(labels);
      const Vector uses = uses_of(net_, labels);
      activate(uses);
      if (!next_multipliers(uses)) break;
      if (reach_ > kSettled || offered > kOfferedWork * (budget_.work - work_before)) continue;
      const double before = budget_.work;
      cutoff_ = std::min(cutoff_, offer_(lift(net_, std::move(labels))));
      offered += budget_.work - before;
    }
    for (std::size_t r = 0; r < active_.size(); ++r) {
      if (top_.multipliers()[r] > 0) prices[net_.row_time[r]] = top_.multipliers()[r];
    }
    return top_.exhausted() ? cutoff_ : top_.bound();
  }

 private:
  void note_gain(bool first) {
    const double gain = dual_.bound() - top_.bound();
    const double hoped = std::min(cutoff_, std::abs(top_.bound()) * (1 + reach_)) - top_.bound();
    without_gain_ = gain > 0.05 * hoped ? 0 : without_gain_ + 1;
    if (gain > 0 || first || dual_.exhausted()) top_ = dual_;
    if (without_gain_ < kPatience) return;
    reach_ *= 0.5;
    without_gain_ = 0;
  }

  // The worst row of every stretch that overflows, where it is worse than those that are active.
  void activate(const Vector& uses) {
    std::size_t worst = 0;
    double most = 0, active_most = 0;
    for (std::size_t r = 0; r <= uses.size(); ++r) {
      const double over = r < uses.size() ? uses[r] - net_.capacity[r] : 0;
      if (over > 0) {
        if (active_[r]) active_most = std::max(active_most, over);
        if (over > most) {
          most = over;
          worst = r;
        }
        continue;
      }
      if (most > 1.1 * active_most) active_[worst] = 1;
      most = active_most = 0;
    }
  }

  // Source: Polyak's step towards a value aimed at; Camerini, Fratta, Maffioli, "On improving
  // relaxation methods by modified gradient techniques", 1975. False if nothing is left to change.
  bool next_multipliers(const Vector& uses) {
    Vector direction(uses.size(), 0.0);
    double norm = 0, violation = 0;
    for (std::size_t r = 0; r < uses.size(); ++r) {
      if (!active_[r]) continue;
      const double now = uses[r] - net_.capacity[r];
      const double excess = now + (before_.empty() ? 0.0 : 0.5 * before_[r]);
      const bool free = dual_.multipliers()[r] > 0;
      if (excess > 0 || free) direction[r] = excess;
      if (now > 0 || free) violation += now * now;
      norm += direction[r] * direction[r];
    }
    norm = std::max(norm, violation);
    before_ = violation > 0 ? direction : Vector();
    if (norm == 0) return false;
    const double aim =
        std::min(cutoff_, top_.bound() + reach_ * std::max(std::abs(top_.bound()), 1.0));
    const double length = std::clamp(aim - dual_.bound(), 0.0, 100 * (aim - top_.bound())) / norm;
    Vector multipliers = dual_.multipliers();
    for (std::size_t r = 0; r < multipliers.size(); ++r) {
      multipliers[r] = std::max(0.0, multipliers[r] + length * direction[r]);
    }
    dual_.set_multipliers(multipliers);
    return true;
  }

  const Network& net_;
  double cutoff_;
  Budget& budget_;
  const Offer& offer_;
  std::vector<char> active_;
  Dual dual_, top_;
  Vector before_;
  double reach_ = kFirstReach;
  int without_gain_ = 0;
};

}  // namespace

double find_prices(const Network& net, double cutoff, Budget& budget, const Offer& offer,
                   Prices& prices) {
  return PriceSearch(net, cutoff, budget, offer).run(prices);
}

}  // namespace autopar::solver
