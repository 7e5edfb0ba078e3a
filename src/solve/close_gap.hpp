// From a fresh network to the least value below a cutoff, or the best that the budget allows.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "solve/branch/explore.hpp"

namespace autopar::solver {

// Called with the bound proven so far and, where there is a new one, a labelling (else empty).
using Report = std::function<void(double bound, const std::vector<int>& labels)>;

// Rows' multipliers by time.
using Prices = std::map<int, double>;

struct GapOptions {
  Prices* prices = nullptr;               // to begin with, and those found
  std::vector<int>* minimiser = nullptr;  // gets the labels that the multipliers favour
  std::vector<std::vector<int>>* met =
      nullptr;                        // gets labels met under a limit, of like parts alike
  std::function<bool()> enough = {};  // asked after the bound: no exploring then
  bool fold = true;                   // like parts first as one
  bool windows = true;                // the exact search under a memory limit
};

// Bounds the whole, then explores below cutoffs that approach the incumbent from the bound: near
// the bound few labels are left, and a labelling found there is the optimum, however bad the
// incumbent was. Consumes the network.
Found close_gap(Network& net, double cutoff, Budget& budget, const Report& report,
                const GapOptions& options = {});

// The same in two parts: the first look reports a bound and perhaps a labelling; what is returned
// does the rest, once, below a cutoff that may have become less. Net and budget must live as long.
using RestOfClosing = std::function<Found(double cutoff)>;
RestOfClosing begin_closing(Network& net, double cutoff, Budget& budget, const Report& report,
                            const GapOptions& options = {});

}  // namespace autopar::solver
