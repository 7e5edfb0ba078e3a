// A bound beside the plan that it is about.
#pragma once

#include <algorithm>

#include "autopar/support.hpp"

namespace autopar {

// A bound and a plan's time are sums of the same prices in other orders: so far they may be apart.
inline constexpr double kSameSum = 1e-9;

// Whether a bound is above what a plan takes by more than rounding: one of the two is wrong.
inline bool contradicts(Seconds bound, Seconds plan) { return bound > plan * (1 + kSameSum); }

// A bound that rounding puts above the plan is the plan's time. One that is above by more stays as
// it is, so that it is seen.
inline Seconds bound_beside(Seconds bound, Seconds plan) {
  return contradicts(bound, plan) ? bound : std::min(bound, plan);
}

// The bound beside a plan of two searches: the larger one, unless that is about fewer meshes than
// the plan's, which is below it then.
inline Seconds bound_of_two(Seconds one, Seconds other, Seconds plan) {
  const Seconds larger = std::max(one, other);
  return bound_beside(contradicts(larger, plan) ? std::min(one, other) : larger, plan);
}

// The bound that a file has, of the plan that is made of it. One that the plan contradicts is about
// other plans: the file was changed by hand. Then it is 0, no bound.
inline Seconds bound_of_file(Seconds bound, Seconds plan) {
  return contradicts(bound, plan) ? 0 : std::min(bound, plan);
}

}  // namespace autopar
