// Passes of messages until they settle.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "solve/bound/dual.hpp"
#include "solve/effort.hpp"
#include "solve/state/budget.hpp"

namespace autopar::solver {

// Passes until the bound reaches the cutoff, a few of them gain too little, or the budget is over.
// Below the cutoff labels die, unless `fixes` is false. After every few passes `look` sees what the
// messages favour, and may lower the cutoff.
template <class Real>
void settle(DualOf<Real>& dual, const Patience& patience, const double& cutoff, bool fixes,
            Budget& budget, const std::function<void()>& look = nullptr) {
  constexpr double kExact = std::is_same_v<Real, float> ? effort::settle::kQuickly : 0;
  double before = -kInfinity;
  for (int pass = 1; pass <= patience.most_passes && !budget.over(); ++pass) {
    dual.pass(fixes ? cutoff : kInfinity);
    budget.add(dual.work_per_pass());
    if (dual.exhausted() || dual.bound() >= cutoff) return;
    if (pass == 1) before = dual.bound();
    if (pass % patience.at_once != 0) continue;
    if (look != nullptr) {
      look();
      budget.add(dual.work_per_pass());
    }
    const double bound = dual.bound();
    const double missing = cutoff < kInfinity ? cutoff - bound : std::abs(bound);
    const double little =
        std::min(patience.of_missing * missing, patience.of_bound * std::abs(bound));
    if (missing <= kExact * std::abs(bound) || bound - before < little) return;
    before = bound;
  }
}

}  // namespace autopar::solver
