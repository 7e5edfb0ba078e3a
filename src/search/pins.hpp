// What the user fixed, on one mesh: as filters over the candidates of ops, and as the specs that
// are left to values.
#pragma once

#include <map>

#include "autopar/search.hpp"

namespace autopar {

// A tensor that must lie in one of these specs.
struct SpecPin {
  std::vector<Spec> specs;
  // They say nothing of partial sums: any may be left over axes that split no dimension.
  bool any_sums = false;
  std::string wish;  // "tensor 'Y': spec [{a},{}]", for messages

  bool keeps(const Spec& spec) const;
};

// An op that must read (or leave) a tensor so.
struct PortPin {
  bool is_input = false;
  std::size_t port = 0;
  SpecPin pin;
};

// The pins of a request on one mesh.
//
// A pin of a tensor is a filter wherever nothing but an op decides how the tensor lies: the spec of
// an activation is what its producer leaves, and where one op reads a tensor the hub_spec is what
// that op needs. Everywhere else it is what is left of the specs of a value's own node: as it is
// stored, its hub where there are several readers, as it leaves the graph.
//
// An out_strategy may also ask for what a ReduceScatter makes of the partial sums that an op
// leaves: in_strategy [[2,4],[4,1]] of a MatMul leaves [[2,1]] and a partial sum over 4, so that
// [[8,1]] is its first dimension scattered further. Where some assignment makes that possible, all
// from which it can be made (by scattering sums, or by slicing what lies whole) are left to the op,
// and its readers get the output in one of the specs that have these counts.
struct KeptPins {
  std::map<std::string, OpPin> ops;
  std::map<OpId, std::vector<PortPin>> ports;
  std::map<ValueId, SpecPin> stored, hub, output;

  bool concerns(const Graph& graph, OpId op) const {
    return ports.count(op) != 0 || ops.count(graph.op(op).name) != 0;
  }
  bool has_values() const { return !stored.empty() || !hub.empty() || !output.empty(); }
};
// Errors (kInput): a pin of a tensor that is not a spec of it on this mesh, or that goes against
// another pin.
Result<KeptPins> keep_pins(const SearchRequest& request, CostModel& model);

// Keeps the candidates of an op that agree with a pin of it. Errors as below.
Result<MeshProblem::OpChoices> pinned(const MeshProblem::OpChoices& all, const OpPin& pin,
                                      const Graph& graph, OpId op, const Rule& rule,
                                      const Mesh& mesh);
// Said of a pin that picked from a part of the op's assignments (CostModel::leaves_out).
std::string picked_from_a_part(const Op& op, const Mesh& mesh);

// Keeps those that agree with all pins. Errors (kInput) where none is left: which
// op, what was asked, and what stands in the way.
Result<MeshProblem::OpChoices> left_by(const KeptPins& pins, MeshProblem::OpChoices choices,
                                       const Graph& graph, OpId op, const Rule& rule,
                                       const Mesh& mesh);

// The name among `names` with the smallest edit distance to `name`; "" where none is near.
std::string nearest_name(const std::string& name, const std::vector<std::string>& names);

}  // namespace autopar
