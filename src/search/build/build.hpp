// What is known of the problem of a mesh before it is built.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// What the ops of a plan take at least together, each by itself, in what is minimised: a bound on
// every plan on the mesh of the model, which costs a tenth of building its problem. 0 where the
// allowance is over before that. Errors as of build_problem().
Result<Seconds> least_of_ops(const SearchRequest& request, CostModel& model,
                             Allowance* allowance = nullptr);

}  // namespace autopar
