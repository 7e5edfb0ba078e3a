// Lists of specs that a node of the Problem may choose from.
#pragma once

#include <vector>

#include "autopar/layout.hpp"

namespace autopar {

using SpecList = std::vector<Spec>;

// All specs without partial sums in which axes of one dimension go in mesh order; replicated first.
SpecList canonical_specs(const Shape& shape, const Mesh& mesh);
// The same specs with their partial sums reduced.
SpecList reduced(SpecList specs);
// Those that cut a tensor into the most parts.
SpecList most_parts(const SpecList& specs, const Mesh& mesh);

}  // namespace autopar
