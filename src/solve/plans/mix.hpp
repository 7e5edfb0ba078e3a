// The best mix of labellings under the memory limit: each node takes its label from one of them.
//
// At the best multipliers, a cheap labelling that is too big and a dear one that fits have the same
// value. Neither is what is wanted, and single changes do not lead from one to the other; a
// labelling that follows the one in a part of the network and the other in the rest is close to the
// bound.
#pragma once

#include "solve/branch/explore.hpp"

namespace autopar::solver {

// Labellings met on the way, the latest ones; labels of a network's remaining nodes. Those that fit
// are kept apart, so that there is always one to mix with.
struct Pool {
  std::vector<std::vector<int>> met, fitting;

  void add(const std::vector<int>& labels);
  void add_fitting(const std::vector<int>& labels);
};

// Below cutoff and within the capacities of the dual's network; value infinite where none is found.
Incumbent best_mix(const Network& net, const Dual& dual, const Pool& pool, double cutoff,
                   Budget& budget);

}  // namespace autopar::solver
