// Which meshes a request tries: asked here by every searcher.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// The mesh or the meshes of the request, or those of its cost model, or the candidates of up to
// max_axes axes (by default kDefaultAxes). Where pins say how something is cut without naming axes
// (split counts, a device matrix), and in a training step, the sizes within a tier come in every
// order. Where max_axes is not given and no such mesh keeps the pins of ops, there are also meshes
// of one more axis that do, and so on up to six; and the coarsest mesh that all device matrices lie
// on is always among them. Never empty.
std::vector<Mesh> meshes_of(const SearchRequest& request);

}  // namespace autopar
