// MindSpore's cost model, for users who compare with what they know.
//
//   MindsporeModel model(cluster, prime_meshes(cluster).front());
//   // as any CostModel; a search takes it with request.cost_model = "mindspore"
#pragma once

#include <optional>

#include "autopar/cost.hpp"

namespace autopar {

// Which strategies MindSpore enumerates for an op ("fully_use_devices").
enum class DeviceUse {
  kAll,        // only those that use all devices, or as many as the op can use (1.0)
  kAllOrNone,  // and the one that splits nothing (2.0)
  kAny,        // any (2.7, where the option is off)
  kAnyAxes,  // any, also on the device matrix of a neighbour: on any axes of the mesh (propagation)
};
// The defaults of set_cost_model_context.
struct MindsporeWeights {
  double alpha = 1;         // per byte of computation
  double beta = 400;        // per byte of communication
  double gamma = 0.001;     // share of a parameter's gradient that counts
  double threshold = 2048;  // bytes of a message up to which ...
  double constant = 3072;   // ... it counts as this many, and above which ...
  double bias = 1024;       // ... it counts as this many more
  DeviceUse devices = DeviceUse::kAllOrNone;
  // "elementwise_op_strategy_follow": what an elementwise op leaves is read as it lies, and such an
  // op need not use all devices.
  bool elementwise_follow = false;
};

// MindSpore's cost model for its dynamic programming and sharding propagation: bytes per device, in
// units of one byte of computation, not seconds. So that a search over one mesh is a search over
// its strategies, the mesh has axes of prime size (prime_meshes) and an op's loop dimensions, in
// the order of its rule, take one run of axes after the other; the device matrix of a strategy is
// those runs, what is left repeats the calculation, and strategies are tried in the order of their
// split counts. Where the device count is a power of two that is all of them; with an odd factor, a
// mesh has those that cut it where its axes are cut, and the meshes together have all.
//
// - Computation: the bytes of the slices that are read (softmax, tile: written; 1.125 times for
//   dropout; Gather from a split table 3 times the table and 7 times the indices); a sum over a
//   split dimension is read once more, and sent. Reshape: nothing, its edges pay.
// - The gradient of a parameter that fewer parts than devices hold is sent: its slice, times gamma.
// - 1.0 is taken off each of the two where dimension 0 of the first input is split over all
//   devices.
// - Redistribution: src/mindspore/redistribution.hpp, with n devices and s bytes in the slice
//   of the source: SplitByAxis computes s; ConcatByAxis computes s, or s + 2 s n where it does not
//   concatenate the first dimension, sends 0.5 s n and 0.5 s backward; PermuteByAxis computes the
//   same and sends 2 s and 2 s backward; a Reshape computes 2 s more. A bool that is sent: never.
// - What is read from inputs and parameters lies as it is read, for free, or in any other layout
//   and is redistributed, as what --inputs or a pin lays out is; outputs lie as they are made, or
//   are redistributed. Of very many layouts only those of ops count, whole, and data parallel. A
//   parameter of several readers lies alike for all. What a value's readers need is redistributed
//   for each.
//
// Memory is autopar's own account, not MindSpore's.
// Source: MindSpore 2.7, frontend/parallel/auto_parallel (operator_costmodel, edge_costmodel,
// costmodel) and frontend/parallel/ops_info/operator_info.
class MindsporeModel final : public CostModel {
 public:
  MindsporeModel(Cluster cluster, Mesh mesh, MindsporeWeights weights = {});
  const Mesh& mesh() const override;
  const Cluster& cluster() const override;
  Result<OpPrice> op_price(const Graph& graph, const Op& op, const Rule& rule,
                           const Assignment& assignment, const OpSpecs& specs) override;
  ReshardTable reshard_prices(const Shape& shape, DType dtype, const std::vector<Spec>& from,
                              const std::vector<Spec>& to) override;
  std::vector<PricedCollective> reshard_steps(const Shape& shape, DType dtype, const Spec& from,
                                              const Spec& to) override;
  std::vector<Assignment> choices(const Op& op, const Rule& rule) const override;
  std::vector<Assignment> choices_of_pin(const Op& op, const Rule& rule) const override;
  bool leaves_out(const Rule& rule) const override;
  bool may_reshard(const Graph& graph, const Value& value, Leg leg) const override;
  bool has_free_boundary(const Value& value, bool shared) const override;
  std::vector<double> follower_prices(const Graph& graph, const Op& op,
                                      const std::vector<OpSpecs>& specs) const override;
  TieBreak break_ties(const Problem& problem, const std::vector<int>& nodes, Solution best,
                      const SolveOptions& options) const override;

 private:
  Cluster cluster_;
  Mesh mesh_;
  MindsporeWeights weights_;
};

// The meshes of axes of prime size: one for powers of two; else the orders of the primes of a tier.
std::vector<Mesh> prime_meshes(const Cluster& cluster);

// Among the plans that cost what an optimal one costs, the one whose ops (at `nodes`) have, one
// after the other, the first choices. One solve per earlier choice; nothing where that would be
// more than 500.
std::optional<Solution> first_of_equals(const Problem& problem, const std::vector<int>& nodes,
                                        Solution optimal, SolveOptions options);

// Its rows in the table of cost models: the variants of this one, and the prices of SAPP.
std::vector<CostModelRow> mindspore_cost_models();

}  // namespace autopar
