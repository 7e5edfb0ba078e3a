// What the rest of the nodes costs at least, by how much it may use.
#pragma once

#include "solve/windows/trellis.hpp"

namespace autopar::solver {

// Of all rows together, weighted by their prices: what fits every row fits their sum. Use and cost
// in units.
struct Completion {
  Units use = 0;
  Units cost = 0;
};

inline constexpr Units kNoCost = Units{1} << 60;

// A layer's lists, per frontier after it: by rising use and falling cost.
struct Completions {
  std::vector<std::size_t> begins;
  std::vector<Completion> all;
  // Of those that use no more; kNoCost where there are none. `hint` is where the last look-up ended
  // (at first: anything); the next is quick if it is for a similar use.
  Units least_cost(std::size_t frontier, Units use, std::size_t& hint) const;
};

// Per layer. Lists that get longer than `most` have neighbours joined, to the use of the one and
// the cost of the other: so they stay lower bounds.
// All lists together stay below some 250 MB: what is past the half of that is shared out.
// Source: relaxed decision diagrams; Bergman, Cire, van Hoeve, Hooker, "Discrete optimization with
// decision diagrams", INFORMS Journal on Computing 2016.
std::vector<Completions> find_completions(const Trellis& trellis, std::size_t most, Budget& budget);

}  // namespace autopar::solver
