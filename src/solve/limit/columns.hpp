// Prices, bounds and plans in turns, for networks whose parts choose apart.
//
// The labellings met so far, combined part by part, give prices for all rows at once and a
// labelling within the limit. At these prices the whole gives a bound and a labelling that favours
// them, which is met next. Where that has nothing new, the bound is as good as the best mix.
// Source: Gilmore, Gomory, "A linear programming approach to the cutting-stock problem", Operations
// Research 1961, where columns come from pricing; with the parts' choices as columns.
#pragma once

#include "solve/limit/prices.hpp"

namespace autopar::solver {

// Goes on from the prices and labellings in `priced`, and leaves the best and the latest there.
void generate_columns(AllTimes& all, Pricer& pricer, Priced& priced, Race& race);

}  // namespace autopar::solver
