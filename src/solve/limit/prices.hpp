// The best prices of the rows, from the labellings that are met on the way.
#pragma once

#include <optional>
#include <vector>

#include "solve/limit/all_times.hpp"
#include "solve/limit/pricer.hpp"

namespace autopar::solver {

// A labelling of the network with all times that was met on the way.
struct Met {
  std::vector<int> labels;
  double cost = 0;
  Vector excess = {};  // per row, above the capacity; negative: what is left

  // What it is worth at prices of the rows.
  double priced(const RowPrices& prices) const;
};
Met weigh(const Network& net, std::vector<int> labels);
// What the node's own uses are worth at the prices, per label.
Vector priced_uses(const Network& net, int n, const RowPrices& prices);

// A node whose labels the best mix divides: between these two that differ much in what they use.
struct DividedNode {
  int node = -1;
  int one = -1, other = -1;  // labels
};

struct Priced {
  RowPrices prices = {};      // the best
  double bound = -kInfinity;  // at these
  std::vector<Met> met = {};  // no two alike, the latest last
  std::optional<DividedNode> divided = {};
  double mixed = kInfinity;  // what the best mix of parts of what was met costs
  // Where a search for prices goes on that a cutoff ended.
  double unpriced = -kInfinity;  // the bound without prices
  double reach = 0;              // how high they may be; 0: as at first
  bool cut_off = false;
};

// Adds a labelling, or puts it last where it was known; of more than a few, the first goes.
void meet_in_pool(const Network& net, const std::vector<int>& labels, Priced& priced);

// Begins with a labelling that is not within the limit, and with the rows that it exceeds; further
// ones have prices when the best mix of what was met exceeds them.
// Source: Kelley, "The cutting-plane method for solving convex programs", SIAM 1960: where rows are
// few, it converges in few steps, also along ridges, on which subgradient steps hardly advance.
// The prices stay behind the program's, towards the best so far: Wentges, "Weighted Dantzig-Wolfe
// decomposition for linear mixed-integer programming", 1997.
Priced find_prices(const AllTimes& all, const std::vector<int>& start, Pricer& pricer, Race& race);
// Goes on from prices that were found before; the pricer has their rows.
Priced find_better_prices(const AllTimes& all, Priced known, Pricer& pricer, Race& race);

}  // namespace autopar::solver
