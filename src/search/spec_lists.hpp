// Lists of specs that a node of the Problem may choose from.
#pragma once

#include <set>
#include <vector>

#include "autopar/layout.hpp"

namespace autopar {

using SpecList = std::vector<Spec>;

// All specs without partial sums in which axes of one dimension go in mesh order; replicated first.
SpecList canonical_specs(const Shape& shape, const Mesh& mesh);
// Appends what `have` has not yet.
void add_missing(SpecList& list, std::set<Spec>& have, const SpecList& more, bool partial_too);
// The same specs with their partial sums reduced.
SpecList reduced(SpecList specs);

}  // namespace autopar
