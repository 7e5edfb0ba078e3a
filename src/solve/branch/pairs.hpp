// The end of a search under the memory limit: two nodes are left.
#pragma once

#include "solve/state/found.hpp"

namespace autopar::solver {

// Tries all pairs of labels where only two nodes are left, and they are not too many. True if it
// did; then `best` is the optimum below the cutoff, if there is one.
bool enumerate_pairs(const Network& net, double cutoff, Budget& budget, Incumbent& best);

}  // namespace autopar::solver
