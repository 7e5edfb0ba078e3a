// Hub ops: readers of a value share what they reshard from a hub that is pinned.
//
// A value is brought into its hub once, and from there each reader reshards it for itself. Where a
// search chooses the hub, that is no loss: it takes what the readers need. Where a pin fixes it,
// several readers may need the same other layout, and each would make it again. So an Identity
// reads the value in their place, and its output has a hub of its own, which is free:
//
//   H, hub pinned -> relu, tanh
//   becomes
//   H -> H.hub (Identity) -> H.hub, hub free -> relu, tanh
//
// It is a rewriting of the graph before anything is searched: to prices, bounds and programs the
// Identity is an op like any other, a view that costs nothing. With the hub of its output as it is
// pinned for the value, the plans are those of the graph as it was. Where the value is an output of
// the graph as well, that goes on from the hub for itself.
#pragma once

#include <string>
#include <vector>

#include "autopar/phase_ops.hpp"
#include "autopar/search.hpp"

namespace autopar {

// One that a graph may have, and the name of its output: both "H.hub", or "H.hub/1" where that is
// taken.
struct HubOp {
  ValueId value;
  std::string name;
  std::string output;
};

// Of all values that two or more ops of one phase read, and none of another, in their order; not of
// constants, nor of what a phase op makes.
std::vector<HubOp> possible_hub_ops(const Graph& graph, const IsReserved& reserved = {});
// Those of values whose hub the pins of a request fix, on one of its meshes at least: by a
// hub_spec, or by an out_strategy that a ReduceScatter reaches. Not of hubs that no Identity can
// hand on (maxima, the axes of a dimension in another order than the mesh's), nor where the cost
// model has every reader reshard for itself.
std::vector<HubOp> pinned_hub_ops(const SearchRequest& request, std::vector<HubOp> possible);

// Each stands just before the first reader of its value, at one place by the order of values.
// Rules have to be found again.
void add_hub_ops(Graph& graph, const std::vector<HubOp>& hub_ops);
// The graph as it was before, when it had so many values. Precondition: nothing else was added to
// it since. Without a number: no phase op (phase_ops.hpp) is left either.
void remove_hub_ops(Graph& graph, std::size_t values = 0);
// Whether the op was added here, or is a phase op: none of the user's.
bool is_hub_op(const Op& op);

}  // namespace autopar
