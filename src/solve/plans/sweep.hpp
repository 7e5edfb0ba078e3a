// Cheap labellings whose uses, weighted and summed over the rows, stay within the capacities so
// weighted: dynamic programming that keeps a part of the states.
#pragma once

#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// Labellings of the remaining nodes with cost (without the rows' prices) below cutoff, the cheapest
// first, at most so many. Every term of the network must be >= 0. The cost is linear in the nodes.
// Adds the numbers it looked at to `work`.
std::vector<std::vector<int>> sweep(const Network& net, const std::vector<int>& order,
                                    const Vector& weights, double cutoff, std::size_t most,
                                    double& work);

}  // namespace autopar::solver
