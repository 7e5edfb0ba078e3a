// The best mix of labellings within the capacities, and what a row is worth there.
#pragma once

#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// What a labelling costs, and what it uses above the capacity of each row, where that is not 0; or
// a part of it, where the labellings of several parts are chosen apart and their excesses add up.
// Cuts of a part follow each other.
struct Cut {
  struct Excess {
    int row = 0;
    double amount = 0;
  };
  double cost = 0;
  std::vector<Excess> excess = {};  // rows ascending
  int part = 0;                     // numbered from 0, without gaps
};

// The multipliers, up to `most` each, for which the sum over the parts of the least of cost +
// multipliers * excess is largest, and that value. The mix of cuts that is worth as much has so
// much of each cut; those of a part add up to 1.
struct Master {
  Vector multipliers = {};
  double value = 0;
  Vector shares = {};
  double work = 0;  // numbers touched
  bool solved =
      false;  // else the work was not enough, and the mix is within the rows, not the best
};

// Source: the restricted master problem of Dantzig, Wolfe, "Decomposition principle for linear
// programs", Operations Research 1960, by the simplex method for generalised upper bounds: Dantzig,
// Van Slyke, "Generalized upper bounding techniques", Journal of Computer and System Sciences 1967.
// So a step costs what the rows' square and the cuts' excesses are, however many parts there are.
// Begins with the first cut of each part; ends where it has done so much work.
Master solve_master(const std::vector<Cut>& cuts, const Vector& most, double most_work = kInfinity);

}  // namespace autopar::solver
