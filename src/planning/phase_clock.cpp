#include "planning/phase_clock.hpp"

#include <algorithm>

namespace autopar {

void PhaseClock::end(const std::string& phase) { add(phase, watch_.lap()); }

void PhaseClock::add(const std::string& phase, Seconds seconds) {
  const auto known =
      std::find_if(phases_.begin(), phases_.end(), [&](const auto& p) { return p.first == phase; });
  if (known != phases_.end()) {
    known->second += seconds;
  } else {
    phases_.emplace_back(phase, seconds);
  }
}

void PhaseClock::end_search(const SearchOutcome& outcome) {
  Seconds build = 0, solve = 0, evaluate = 0;
  for (const MeshTrial& trial : outcome.trials) {
    build += trial.build_seconds;
    solve += trial.solve_seconds;
    evaluate += trial.evaluate_seconds;
  }
  const Seconds passed = watch_.lap(), sum = build + solve + evaluate;
  // Of several threads: each phase's part of the time that passed.
  if (sum > passed) {
    for (Seconds* phase : {&build, &solve, &evaluate}) *phase *= passed / sum;
  }
  const Seconds other = passed - build - solve - evaluate;
  add("build", build);
  add("solve", solve);
  add("evaluate", evaluate);
  // Searches that found nothing, baselines in place of a plan, what `auto` tried beside it.
  constexpr Seconds kWorthSaying = 1e-3;
  if (other > kWorthSaying) add("other searching", other);
}

}  // namespace autopar
