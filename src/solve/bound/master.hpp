// The best mix of labellings within the capacities, and what a row is worth there.
#pragma once

#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// What a labelling costs, and what it uses above the capacity of each row; or a part of it, where
// the labellings of several parts are chosen apart and their excesses add up.
struct Cut {
  double cost = 0;
  Vector excess = {};
  int part = 0;  // numbered from 0, without gaps
};

// The multipliers, up to `most` each, for which the sum over the parts of the least of cost +
// multipliers * excess is largest, and that value. The mix of cuts that is worth as much has so
// much of each cut; those of a part add up to 1.
struct Master {
  Vector multipliers = {};
  double value = 0;
  Vector shares = {};
  double work = 0;  // numbers touched
};

// Source: the restricted master problem of Dantzig, Wolfe, "Decomposition principle for linear
// programs", Operations Research 1960, by the simplex method on a full tableau. Begins with the
// first cut of each part.
Master solve_master(const std::vector<Cut>& cuts, const Vector& most);

}  // namespace autopar::solver
