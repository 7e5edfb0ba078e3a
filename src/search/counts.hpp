// Split counts of a pin against the rule of its op: whether a mesh can give them, and which loop
// dimension stands in the way.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

using SplitCounts = std::vector<std::vector<std::int64_t>>;

std::string to_text(const SplitCounts& counts);  // "[[2,1],[1,4]]"
// "op 'fc1' (MatMul): in_strategy [[2,1],[1,4]]"
std::string counts_text(const Op& op, const OpPin& pin);

// Missing trailing inputs (constants such as axes, absent biases) may be left out of a pin, and so
// may the dimensions of such constants.
bool agrees(const SplitCounts& asked, const SplitCounts& have);

// What scattering partial sums makes of a spec, so that it has these split counts, the other sums
// reduced: all ways to do so, each once; the spec itself where it has them already. `slices_too`:
// axes over which the tensor lies whole may split it, too. Depth first: (dimensions + 1)^(axes) at
// most.
std::vector<Spec> scattered(const Spec& spec, const std::vector<std::int64_t>& counts,
                            const Shape& shape, const Mesh& mesh, bool slices_too = false);

// Whether some assignment of the mesh's axes gives the split counts of a pin (its assignment does
// not count), the outputs perhaps by a ReduceScatter. Depth first over the axes, which leaves out
// whatever splits a dimension in more parts than asked.
bool gives_counts(const OpPin& pin, const Graph& graph, const Op& op, const Rule& rule,
                  const Mesh& mesh);

// Why no assignment gives the split counts of a pin, whatever the mesh: a wrong number of inputs or
// dimensions, a dimension that does not divide or whose parts are thinner than their halos, a loop
// dimension that stays whole or is cut in two ways, too few devices. The first of the pins of a
// request that this holds for is an error (kInput).
Status check_counts(const SearchRequest& request);

// The same, or what on this mesh stands in the way.
std::string why_not(const OpPin& pin, const Graph& graph, const Op& op, const Rule& rule,
                    const Mesh& mesh);

}  // namespace autopar
