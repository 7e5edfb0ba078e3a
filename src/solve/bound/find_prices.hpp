// Where to begin under the memory limit: multipliers for all times at once, from nothing.
#pragma once

#include <functional>

#include "solve/close_gap.hpp"

namespace autopar::solver {

// Subgradient steps as in tighten_rows(), on a network with a row for every time that can be the
// tightest. Of each stretch of rows that overflow, only the worst gets a multiplier, so that few
// rows share the price of one bottleneck. Returns the bound; `prices` get the multipliers found.
// `offer` is called with labellings (of the network's origin) that are worth a repair, and returns
// the cutoff from then on.
using Offer = std::function<double(const std::vector<int>&)>;
double find_prices(const Network& net, double cutoff, Budget& budget, const Offer& offer,
                   Prices& prices);

}  // namespace autopar::solver
