// The best multipliers for few rows, from the labellings that are met on the way.
#pragma once

#include <vector>

#include "search/solver/explore.hpp"

namespace autopar::solver {

// What a labelling costs, and what it uses above the capacity of each row.
struct Cut {
  double cost = 0;
  Vector excess = {};
};

// The multipliers, up to `most` each, for which the least of cost + multipliers * excess is
// largest, and that value.
struct Master {
  Vector multipliers = {};
  double value = 0;
};

// Source: the restricted master problem of Dantzig, Wolfe, "Decomposition principle for linear
// programs", Operations Research 1960, by the simplex method on a full tableau.
Master solve_master(const std::vector<Cut>& cuts, const Vector& most);

// Moves the multipliers to where the bound is best, and lets the messages settle there; no label
// dies. `met` gets the labellings that are met on the way. False if rows are too many, or if what
// the labellings allow was not reached.
// Source: Kelley, "The cutting-plane method for solving convex programs", SIAM 1960. Where rows are
// few, it converges in few steps, also along ridges, on which subgradient steps hardly advance.
bool find_best_multipliers(const Network& net, Dual& dual, Budget& budget,
                           std::vector<std::vector<int>>& met);

}  // namespace autopar::solver
