// What data parallelism means for one op and for one tensor.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// Per op the factors that run along that dimension of the data inputs, by each of what it reads: of
// attention's products those of the queries and those of the keys.
std::vector<std::vector<int>> factors_along(const Graph& graph, const GraphRules& rules, int dim);

// The candidate that splits nothing but `factor` (-1: nothing at all) over as many devices as
// possible. There always is one, since the all-none assignment is a candidate; with pins the
// result may be assignments.size(): none.
std::size_t data_parallel_choice(const std::vector<Assignment>& assignments, int factor,
                                 const Mesh& mesh);

// Dimension 0 split over the axes with the largest product that divides it.
Spec data_parallel_spec(const Shape& shape, const Mesh& mesh);

}  // namespace autopar
