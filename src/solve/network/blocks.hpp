// The parts of a network that no single node separates further.
#pragma once

#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// Per edge, its biconnected component; edges of the nodes in `left_out` (and those that are gone)
// are in none: -1. Layers of a model that only hand one value on to the next are such blocks.
// Source: Hopcroft, Tarjan, "Efficient algorithms for graph manipulation", CACM 1973. Linear.
std::vector<int> blocks_of_edges(const Network& net, const std::vector<char>& left_out);

}  // namespace autopar::solver
