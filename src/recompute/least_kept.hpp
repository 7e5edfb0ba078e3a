// What a backward pass at least takes for what it reads of the forward pass, whichever of it is
// kept and whichever made again.
#pragma once

#include <vector>

#include "autopar/recompute.hpp"
#include "recompute/repeatable.hpp"

namespace autopar {

// Per value what keeping it takes; per op what doing it again takes. Any one unit; none is
// negative.
struct KeepPrices {
  std::vector<double> keep, repeat;
};
struct LeastKept {
  double sum = 0;           // no choice of what is kept takes less
  std::vector<char> keeps;  // per value, of a choice that takes that
};

// For forward ops that no other are repeated than that level allows, from a graph's inputs on,
// which are there anyway. Unlike recompute(), for all that it may do to a graph that this one is a
// part of: there is a minimum cut for any prices, whatever part of a value each device has. The sum
// is concave in the prices. Time: one maximum flow.
LeastKept least_kept(const Graph& graph, Recompute what, const KeepPrices& prices);

}  // namespace autopar
