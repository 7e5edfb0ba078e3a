// Passes of messages until they settle.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "solve/bound/dual.hpp"
#include "solve/effort.hpp"
#include "solve/state/budget.hpp"

namespace autopar::solver {

// Messages change by nearly the same from pass to pass for a long time. So now and then they go on
// in that direction, further each time that it raises the bound; where it does not, they stay.
template <class Real>
class Extrapolation {
 public:
  explicit Extrapolation(const DualOf<Real>& dual) : before_(dual) {}

  // After a pass.
  void look_at(DualOf<Real>& dual, double cutoff, Budget& budget) {
    if (++passes_ % effort::settle::kStride != 0) return;
    if (passes_ > effort::settle::kStride) {
      DualOf<Real> further = dual;
      further.extrapolate(before_, times_);
      further.pass(cutoff);
      budget.add(dual.work_per_pass());
      const bool better = further.exhausted() || further.bound() > dual.bound();
      if (better) dual = std::move(further);
      times_ = better ? 2 * times_ : std::max(0.5, times_ / 2);
    }
    before_ = dual;
  }

 private:
  DualOf<Real> before_;
  double times_ = 1;
  int passes_ = 0;
};

// Passes until the bound reaches the cutoff, a few of them gain too little, or the budget is over.
// Below the cutoff labels die, unless `fixes` is false. After every few passes `look` sees what the
// messages favour, and may lower the cutoff; then `enough` may end it.
template <class Real>
void settle(DualOf<Real>& dual, const Patience& patience, const double& cutoff, bool fixes,
            Budget& budget, const std::function<void()>& look = nullptr,
            const std::function<bool()>& enough = nullptr) {
  constexpr double kExact = std::is_same_v<Real, float> ? effort::settle::kQuickly : 0;
  double before = -kInfinity;
  Extrapolation<Real> extrapolation(dual);
  for (int pass = 1; pass <= patience.most_passes && !budget.over(); ++pass) {
    const double below = fixes ? cutoff : kInfinity;
    dual.pass(below);
    budget.add(dual.work_per_pass());
    if (!dual.exhausted() && dual.bound() < cutoff) extrapolation.look_at(dual, below, budget);
    if (dual.exhausted() || dual.bound() >= cutoff) return;
    if (pass == 1) before = dual.bound();
    if (pass % patience.at_once != 0) continue;
    if (look != nullptr) {
      look();
      budget.add(dual.work_per_pass());
    }
    const double bound = dual.bound();
    if (enough != nullptr && enough()) return;
    const double missing = cutoff < kInfinity ? cutoff - bound : std::abs(bound);
    const double little =
        std::min(patience.of_missing * missing, patience.of_bound * std::abs(bound));
    if (missing <= kExact * std::abs(bound) || bound - before < little) return;
    before = bound;
  }
}

// The messages of like nodes are where those of the single nodes begin, with the dual's
// multipliers. `look` sees labels that they favour. The bound that they reach; none where too
// little is alike.
double settle_folded(const Network& net, Dual& dual, const double& cutoff, Budget& budget,
                     const std::function<void(std::vector<int>)>& look = nullptr);

}  // namespace autopar::solver
