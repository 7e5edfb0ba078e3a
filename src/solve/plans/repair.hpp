// From a labelling to one within the capacities, and to a better one.
#pragma once

#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// Single labels are changed: first those that take away most of the overflow for what they cost,
// then those that lower the cost and stay within the capacities. False if an overflow is left.
// Adds the numbers it looked at to `work`, and gives up when that passes the limit; for the costs
// as much again.
bool repair(const Network& net, std::vector<int>& labels, double work_limit, double& work);

}  // namespace autopar::solver
