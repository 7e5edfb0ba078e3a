// The best mix of labellings under the memory limit: each node takes its label from one of them.
//
// At the best multipliers, a cheap labelling that is too big and a dear one that fits have the same
// value. Neither is what is wanted, and single changes do not lead from one to the other; a
// labelling that follows the one in a part of the network and the other in the rest is close to the
// bound.
#pragma once

#include "solve/bound/dual.hpp"
#include "solve/state/found.hpp"

namespace autopar::solver {

// Of the labels that the dual leaves: below cutoff and within the capacities of its network; value
// infinite where none is found. The terms are those of the dual, so that what a mix costs above the
// bound shows where it does.
Incumbent best_mix(const Network& net, const Dual& dual, double cutoff, Budget& budget);

}  // namespace autopar::solver
