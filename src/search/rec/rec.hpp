// The searcher `rec`: double recursion on any number of devices.
//
// 1. Recursion over the finest cuts (prime factors of every tier, slowest links first).
// 2. Cuts that treat the ops alike are joined to the axes of a few meshes (meshes.hpp).
// 3. On each mesh the recursion again, now with whole axes as cuts and with the pins and layouts
//    that the request asks for: every op gets one assignment. Its estimates say which meshes are
//    worth the next step.
// 4. Where values lie between the ops (stored specs, hubs, outputs) is what is left: the ordinary
//    Problem with one candidate per op, solved as ever under the memory limit, so that the plan is
//    priced by evaluate() and can be rewritten like any other.
// 5. Where nothing fits into memory: all of it again with a price on the bytes that are there when
//    memory is short, then a mix of all plans that were made (within_limit.hpp).
// The cheapest plan of all meshes is the answer. Linear in the ops and in log2(devices).
#pragma once

#include "autopar/search.hpp"

namespace autopar {

Result<SearchOutcome> search_rec(const SearchRequest& request);

// What an exact search has proven: on these meshes no plan costs less than `cost`.
struct Proven {
  Seconds cost = 0;
  std::vector<Mesh> meshes;
};
// The plan that search_rec() finds, where it is cheaper than `proven.cost`. Spares what hardly
// leads there: plans on the proven meshes, and to make fit what is dearer even without a memory
// limit.
Result<std::optional<SearchOutcome>> search_rec(const SearchRequest& request, const Proven& proven);

}  // namespace autopar
