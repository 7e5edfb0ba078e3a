// Plans that follow one labelling here and another there.
#pragma once

#include "solve/limit/prices.hpp"

namespace autopar::solver {

// Of the labellings in `priced`: each node takes its label from one of them, by the best prices and
// by rows that are full. What is found goes to `all`.
void mix_labellings(AllTimes& all, const std::vector<int>& rows, const Priced& priced, Race& race);

}  // namespace autopar::solver
