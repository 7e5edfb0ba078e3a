// The memory limit at the times where it matters, which are found on the way.
#pragma once

#include "solve/close_gap.hpp"

namespace autopar::solver {

// The least cost below cutoff of choices that fit the limit. Begins with the times at which `start`
// does not fit, solves the problem with the limit at those times only, which bounds the whole, and
// adds the times at which that solution does not fit. Nodes and edges that are not live at these
// times are eliminated like any others. What is found is repaired for all times.
Found search_within_limit(const Problem& problem, const std::vector<int>& start, double cutoff,
                          Budget& budget, const Report& report);

}  // namespace autopar::solver
