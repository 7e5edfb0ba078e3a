// Better choices from good ones, where there is time left.
#pragma once

#include "solve/state/race.hpp"

namespace autopar::solver {

// Frees some nodes at a time, those near each other or in use at the same full time, and solves
// for them while the others keep their choices; until the budget is over. The order is drawn from a
// fixed seed and rounds of neighbourhoods have fixed work, so that only where it ends depends on
// the clock. `threads` work on the neighbourhoods of a round and do not change what is found.
// Source: Shaw, "Using constraint programming and local search methods to solve vehicle routing
// problems", 1998. Begins with feasible choices; better ones are offered to the race.
void search_neighbourhoods(Race& race, int threads);

// How many nodes the next neighbourhood frees after one of `size`: more where nothing was left open
// below the cutoff (`closed`), fewer where the work did not suffice for that.
double next_size(double size, bool closed, double most);

}  // namespace autopar::solver
