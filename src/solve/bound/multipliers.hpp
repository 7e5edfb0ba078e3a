// The bound under the memory limit: rows priced by multipliers.
#pragma once

#include "solve/branch/explore.hpp"
#include "solve/plans/mix.hpp"

namespace autopar::solver {

// How far above the best bound the steps aim, as a part of it: from the first on, and less where
// that is too far, until it is less than the last.
struct StepReach {
  double first = 0.05;
  double last = 1e-6;
};

// Subgradient steps on the multipliers, each with a pass of messages; ends at the best multipliers
// seen. Labellings met on the way are repaired and kept as in tighten(); and noted, where there is
// a pool.
void tighten_rows(const Network& net, Dual& dual, double& cutoff, Incumbent& best, Budget& budget,
                  int most_steps, StepReach reach = {}, Pool* pool = nullptr);

}  // namespace autopar::solver
