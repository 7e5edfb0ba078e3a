// The best choice of one variant per part within the capacities: a linear program over mixes of
// variants, which gives the rows' prices, and a choice close to it.
//
// Parts are many and rows that matter few, so nearly all parts have a single variant in the best
// mix.
#pragma once

#include <map>
#include <optional>

#include "solve/plans/variants.hpp"
#include "solve/state/budget.hpp"

namespace autopar::solver {

// A part of which the mix has several variants, and the two that it has most of.
struct Divided {
  std::size_t part = 0, one = 0, other = 0;
};

struct Combination {
  double value = kInfinity;             // of the best mix
  bool fits = false;                    // the mix does
  std::map<int, double> prices = {};    // per row, where not 0
  std::vector<int> variants = {};       // one per part, within the capacities; or empty
  double cost = kInfinity;              // theirs
  std::optional<Divided> divided = {};  // where a choice differs most from the mix, if it does
};

// `rows` are those that the program begins with; it gets those that have a price. `prices`: near
// the best, to begin with. Variants that cannot be part of anything that costs less than `below`
// are not chosen. Source: Dantzig, Wolfe, "Decomposition principle for linear programs", Operations
// Research 1960; rows and columns are added as they are needed.
Combination combine(const Parts& parts, const Vector& capacity, const std::map<int, double>& prices,
                    std::vector<int>& rows, double below, Budget& budget);

}  // namespace autopar::solver
