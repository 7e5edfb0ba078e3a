// How little memory suffices, where the limit is too small for every plan.
#pragma once

#include "solve/state/race.hpp"

namespace autopar::solver {

// The least peak over all choices without forbidden ones, by bisection: each step asks whether
// anything fits a limit. Begins with the least peak that the race was offered and offers it each
// that is less; at most `enough` ends it. True if the last is proven to be the least.
bool find_least_peak(Race& race, double enough);

}  // namespace autopar::solver
