// Branching under the memory limit on what the best mix of labellings divides.
//
// A node that uses much, such as an embedding, and of which the mix has one half in one place and
// one in another, leaves a gap that prices cannot close and that branching on single labels sees
// last: at the best prices its labels are worth the same. With either half of its labels left out,
// prices and mix are others.
#pragma once

#include <vector>

#include "solve/limit/prices.hpp"
#include "solve/state/race.hpp"

namespace autopar::solver {

// A node's choices that stay.
struct Kept {
  std::size_t node = 0;
  std::vector<int> choices = {};
};

// The node's choices, by which of the two labels uses about as much, at the prices.
std::vector<Kept> halves_of(const Network& net, const DividedNode& divided,
                            const RowPrices& prices);

// Prices and mixes of the halves, and of theirs in turn, the one with the least bound first, as
// long as the gap is worth it. `start` are choices that do not fit.
// Source: branch and price; Barnhart et al., "Branch-and-price: column generation for solving huge
// integer programs", Operations Research 1998.
void search_halves(Race& race, const std::vector<int>& start, std::vector<Kept> halves);

}  // namespace autopar::solver
