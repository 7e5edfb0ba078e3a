// Prices, bounds and labellings in turns, for networks whose parts choose apart.
//
// The labellings met so far, combined part by part, give prices for all rows at once and a
// labelling within the limit. At these prices the whole gives a bound and a labelling that favours
// them, which is met next. Where that has nothing new, the bound is as good as the best mix.
// Source: Gilmore, Gomory, "A linear programming approach to the cutting-stock problem", Operations
// Research 1961, where columns come from pricing; with the parts' choices as columns.
#pragma once

#include <functional>
#include <vector>

#include "solve/close_gap.hpp"

namespace autopar::solver {

// Where labellings of the network with all rows go, and what is known by then.
struct SiftState {
  std::function<std::vector<int>(const std::vector<int>&)> labels_of;  // choices of the problem
  // A labelling within the limit, to be kept if it is better; improved before, or not.
  std::function<void(std::vector<int>, bool improve)> take;
  std::function<void(double)> raise;  // the bound
  const std::vector<int>& best;       // empty: none is within the limit so far
  const double& bound;
  const double& cutoff;
};

// `all` is the problem's network with a row for every time that can be the tightest, and `pool` has
// labellings of it. `prices` are where to begin; they get the best.
void sift(const Problem& problem, const Network& all, std::vector<std::vector<int>> pool,
          Prices& prices, Budget& budget, const SiftState& state);

}  // namespace autopar::solver
