// The least cost within the capacities: dynamic programming over a trellis that keeps every state
// which could lead to it.
#pragma once

#include "solve/windows/trellis.hpp"

namespace autopar::solver {

struct Swept {
  std::vector<int> labels = {};  // of the cheapest that fits; empty where none was found
  Units left_out = 0;  // least value of what was not looked at; the trellis's room if all was
};

// `net` is the network of the trellis; its uses and capacities are integers.
Swept sweep_exactly(const Network& net, const Trellis& trellis, Budget& budget);

}  // namespace autopar::solver
