// What the user fixed, as filters over candidates.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// Keeps the candidates that agree with the pin. Errors (kInput) where none is left: which op, what
// was asked, what is possible, and whether a shape or the mesh stands in the way.
Result<MeshProblem::OpChoices> pinned(const MeshProblem::OpChoices& all, const OpPin& pin,
                                      const Graph& graph, OpId op, const Rule& rule,
                                      const Mesh& mesh);

// Said of a pin that picked from a part of the op's assignments (CostModel::leaves_out).
std::string picked_from_a_part(const Op& op, const Mesh& mesh);

// Pins that name no op or value of the graph, with the nearest name.
Status check_names(const Pins& pins, const Graph& graph);

// The name among `names` with the smallest edit distance to `name`; "" where none is near.
std::string nearest_name(const std::string& name, const std::vector<std::string>& names);

// An op that must read a value in a given layout.
struct FixedRead {
  OpId op;
  std::size_t port = 0;
  Spec spec;
};
struct KeptPins {
  Pins pins;
  std::vector<FixedRead> reads;
};
// The pins of a request, where an out_strategy may also ask for what a ReduceScatter makes of the
// partial sums that the op leaves: in_strategy [[2,4],[4,1]] of a MatMul leaves [[2,1]] and a
// partial sum over 4, so that [[8,1]] is its first dimension scattered further. Such an op is
// pinned to the assignment, and its output to be read so: by its hub, or by its only reader.
KeptPins with_scattered_outputs(const SearchRequest& request, CostModel& model);
// Keeps the candidates of an op that read as `reads` say. Errors as above.
Result<MeshProblem::OpChoices> reading(const MeshProblem::OpChoices& all,
                                       const std::vector<FixedRead>& reads, const Graph& graph,
                                       OpId op, const Mesh& mesh);
// Whether `reads` say something about the op.
bool is_fixed_reader(const std::vector<FixedRead>& reads, OpId op);

}  // namespace autopar
