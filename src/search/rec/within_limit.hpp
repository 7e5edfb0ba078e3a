// Plans that fit where the cheapest ones do not.
#pragma once

#include "search/rec/attempts.hpp"

namespace autopar::rec {

// The recursion again with a price on every byte that is there when memory is short, from the first
// cut on, so that what is big is split early: a Lagrange multiplier, raised until the plan fits and
// then lowered again while it still does. Then the plans that may fit with their values placed
// otherwise (`near`), if they can be cheaper. Last, where nothing fits, all plans that were made,
// mixed op by op. A few recursions per mesh. Precondition: no plan of `made` fits.
Status fit_into_memory(Attempts& attempts, std::vector<Attempt>& made,
                       const std::vector<Attempt>& near);

}  // namespace autopar::rec
