// The searcher `auto`: runs the exact search where the problem is small enough for it, or --gap or
// a time limit bounds it, and `rec`, `data_parallel` and (where something is pinned) `propagate` as
// they would run by themselves; without the exact search, a local improvement of the best of these.
// The cheapest plan that fits is taken, the first of equals in the order in which they ran: so it
// is never dearer than any of them run beside it with the same options. What the exact search has
// proven to be no cheaper is not run.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

Result<SearchOutcome> search_auto(const SearchRequest& request);
// `affordable`: entries of the exact search's tables, over all meshes, up to which it is run
// without a time limit.
Result<SearchOutcome> search_auto(const SearchRequest& request, double affordable);

}  // namespace autopar
