// How little memory suffices, where the limit is too small for every plan.
#pragma once

#include <vector>

#include "solve/state/race.hpp"

namespace autopar::solver {

struct LeastPeak {
  double use = kInfinity;
  int time = -1;
  bool proven = false;
  std::vector<int> choices = {};
};

// The least peak over all choices without forbidden ones, by bisection: each step asks whether
// anything fits a limit. `peak` starts as that of some known choices; at most `enough` ends it.
LeastPeak find_least_peak(const Problem& problem, LeastPeak peak, double enough, Budget& budget);

}  // namespace autopar::solver
