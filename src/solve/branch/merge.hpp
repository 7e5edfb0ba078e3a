// Merging of neighbouring nodes: closes cycles, which tightens the bound, until branching is
// cheaper.
#pragma once

#include "solve/network/network.hpp"

namespace autopar::solver {

// Merges disjoint pairs of neighbours whose common labels are few, one round of them. False where
// all would be too large.
bool merge_nodes(Network& net, double cutoff);

}  // namespace autopar::solver
