// Weights of busy times by the plans that are known.
#pragma once

#include <optional>
#include <vector>

#include "autopar/streams.hpp"

namespace autopar {

// Of plans that are so busy: the weights with which the least weighted mean of any of them is the
// largest. The next plan that is found with them shows how much of that bound holds for all
// (Kelley, "The cutting-plane method for solving convex programs", 1960). None is without any
// weight. Of plans that are busy with nothing, even ones. Precondition: there are some.
StreamTimes balanced_weights(std::vector<StreamTimes> busy);

// These, where they may say more than `bound`, which is known. Nothing: with no weights a search
// has a bound that is larger by more than 2 %, since one of the plans does not allow it.
std::optional<StreamTimes> weights_of_more(const std::vector<StreamTimes>& busy, Seconds bound);

}  // namespace autopar
