// Phase ops: the ops of one phase share what they reshard from a value that several phases read.
//
// A training step goes forward, backward, and updates. What the forward pass makes and the backward
// pass reads waits between them in its hub, and every op reshards it from there for itself. So
// several readers in one phase have an Identity of their own, and its output a hub of its own:
//
//   X.hub -> q, k, v, q.grad, k.grad, v.grad     becomes
//   X.hub -> X.forward (Identity) -> its hub -> q, k, v
//         -> X.backward (Identity) -> its hub -> q.grad, k.grad, v.grad
//
// Thus X has a layout in which it is kept, its hub, one in which the forward pass gets it and one
// in which the backward pass gets it: kept split over the sequence, gathered once in each phase. A
// parameter that several phases read is treated alike; what is "kept" of it is what is stored.
//
// It is a rewriting of the graph before anything is searched. To prices, bounds, memory and
// programs the Identity is an op like any other, a view that costs nothing; the search only knows
// that it hands on the hub as it is. With the hubs of both phases as X's own the plan is that of
// the graph without phase ops.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autopar/ops.hpp"

namespace autopar {

// Whether no op that is added may have that name; null: any may.
using IsReserved = std::function<bool(const std::string&)>;
// As Names::unique(), but for those.
std::string unreserved(Names& names, const std::string& stem, const IsReserved& reserved);

// Of each phase in which two or more ops read a value that is read in another phase too; not of
// constants, nor of single numbers, which cannot be split. Each stands just before the first reader
// in its phase. Returns how many there are. Rules have to be found again.
std::size_t add_phase_ops(Graph& graph, const IsReserved& reserved = {});

// With which an Identity hands on a value that lies so; nothing where none does: maxima, the axes
// of a dimension in another order than the mesh's.
std::optional<Assignment> handing_on(const Spec& spec, const Rule& rule, const Mesh& mesh);

// Those that a graph has.
class PhaseOps {
 public:
  explicit PhaseOps(const Graph& graph);
  bool contains(OpId op) const { return is_phase_op_[op.index()]; }
  // The phase op through which the ops of a phase read a value; invalid: each for itself.
  OpId of(ValueId value, Phase phase) const;
  bool empty() const { return op_of_.empty(); }

 private:
  std::vector<bool> is_phase_op_;
  std::map<std::pair<ValueId, Phase>, OpId> op_of_;
};

}  // namespace autopar
