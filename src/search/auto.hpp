// The searcher `auto`: runs the quick searchers beside each other, then the exact one where the
// problem is small enough for it or a time limit bounds it, else a local improvement of the best
// quick plan. Whoever found the cheapest plan that fits is picked.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

Result<SearchOutcome> search_auto(const SearchRequest& request);

}  // namespace autopar
