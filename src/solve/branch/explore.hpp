// The exact search below a cutoff: reductions, bound, fixing, merging of nodes, branching.
#pragma once

#include "solve/bound/dual.hpp"
#include "solve/state/found.hpp"

namespace autopar::solver {

// The least value below cutoff. Consumes the network.
Found explore(Network& net, double cutoff, Budget& budget);
// The same among those labels, and among what a dual that has been tightened leaves; the network
// stays.
Found explore_restricted(const Network& net, const std::vector<Labels>& kept, double cutoff,
                         Budget& budget);
Found explore_survivors(const Network& net, const Dual& dual, double cutoff, Budget& budget);

// Passes until the bound settles. Labellings found on the way are kept in
// `best` (labels of the nodes that are left) and lower the cutoff.
void tighten(const Network& net, Dual& dual, double& cutoff, Incumbent& best, Budget& budget,
             const Patience& patience);

}  // namespace autopar::solver
