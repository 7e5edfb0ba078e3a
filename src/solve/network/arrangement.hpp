// An order of a network's nodes in which few nodes at a time still have neighbours to come.
#pragma once

#include "solve/network/network.hpp"

namespace autopar::solver {

// All remaining nodes. Greedy: next is the node that leaves the smallest frontier (nodes that have
// neighbours to come), among the neighbours of the frontier.
std::vector<int> narrow_order(const Network& net);

}  // namespace autopar::solver
