// The search for the plan whose step takes the least time, with a profile: that time is a
// simulation (simulate()), which no problem of costs that add up says. But no step is shorter than
// any of its streams is busy, so than any weighted sum of busy times with weights that sum to 1;
// and such a sum is a problem of that kind. So a few weightings are searched, what they find is
// simulated, and the largest of the bounds holds for all plans (a Lagrangian dual of the largest
// busy time: Geoffrion, "Lagrangean relaxation for integer programming", 1974).
#pragma once

#include "search/mesh_search.hpp"

namespace autopar {

// On these meshes, with the request's own weights, or none.
Result<SearchOutcome> search_on(const SearchRequest& request, const Searcher& searcher,
                                const std::vector<Mesh>& meshes, const MeshSearchReach& reach = {});

// The first weighting: what most plans of a cluster are found by.
StreamTimes first_weights(const Cluster& cluster);

// Whether a searcher that proves bounds has streams to weigh.
bool is_weighted(const SearchRequest& request, const Searcher& searcher);
Result<SearchOutcome> search_weighted(const SearchRequest& request, const Searcher& searcher);

}  // namespace autopar
