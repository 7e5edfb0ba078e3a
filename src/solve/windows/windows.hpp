// The exact search under a memory limit for networks that are narrow in some order.
#pragma once

#include "solve/bound/dual.hpp"
#include "solve/state/found.hpp"

namespace autopar::solver {

// The least value below cutoff, for the network of a dual that has been tightened: everything in a
// window above the bound is looked at, then in a wider one, until something is found there, which
// is then the optimum. Found.bound is what was proven where a window was too much.
Found search_windows(const Network& net, const Dual& dual, double cutoff, Budget& budget);

}  // namespace autopar::solver
