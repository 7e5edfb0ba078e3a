// What the user fixed, as filters over candidates.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// Keeps the candidates that agree with the pin. Errors (kInput) where none is left: which op, what
// was asked, what is possible, and whether a shape or the mesh stands in the way.
Result<MeshProblem::OpChoices> pinned(const MeshProblem::OpChoices& all, const OpPin& pin,
                                      const Graph& graph, OpId op, const Rule& rule,
                                      const Mesh& mesh);

// Pins that name no op or value of the graph, with the nearest name.
Status check_names(const Pins& pins, const Graph& graph);

// The name among `names` with the smallest edit distance to `name`; "" where none is near.
std::string nearest_name(const std::string& name, const std::vector<std::string>& names);

}  // namespace autopar
