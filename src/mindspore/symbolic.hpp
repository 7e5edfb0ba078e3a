// The relative costs of SAPP, MindSpore's double recursion: elements, not seconds. They only
// compare plans with each other, know no link or device, and no memory; meant for `rec`.
//
// A cut of an axis of prime size p sends (p-1)/p of a tensor, so half of it for p = 2; an axis of
// composite size is the cuts by its primes one after the other, each on the shapes that the earlier
// ones left. Of an op C = A x B whose loop dimensions are those of A and C (I), of B and C (J), of
// A and B (K) and of all three (batch), with |T| the elements of a tensor:
// - MatMul without batch: I 0.1 |B|, J |A|, K |C|, each times (p-1)/p; J after K and K after J are
//   not for SAPP: the square of all operands' elements, dearer than anything else;
// - with batch, m = 0.15 of the least of the halves of A, B, C: batch r m, where r = 32 if the
// batch
//   is 1, else max(32 / batch - 1, 0); a second batch dimension r m - 1, not below 0; I, J, K the
//   halves of B, A, C;
// - nothing cut: the least of the halves squared, over 25 (with batch: m squared over 25); in an op
//   that was cut before it is not for SAPP either;
// - Conv: batch, output channels, input channels as I, J, K with weight 1; rows and columns are not
//   for SAPP;
// - other ops: nothing, the redistribution to their neighbours decides;
// - redistribution: 16 times the elements of the tensor for every cut on which the two ends differ,
//   a partial sum counting as not cut (its reduction is in the op that made it).
// What the public description leaves open is chosen here: cuts by other primes than 2, and that all
// leading dimensions of A count as I.
// Source: MindSpore 2.7, frontend/parallel/auto_parallel/rec_core (rec_cost).
#pragma once

#include "autopar/cost.hpp"

namespace autopar {

class SymbolicModel final : public CostModel {
 public:
  SymbolicModel(const Cluster& cluster, const Mesh& mesh) : paths_(cluster, mesh) {}
  const Mesh& mesh() const override { return paths_.mesh(); }
  const Cluster& cluster() const override { return paths_.cluster(); }
  Result<OpPrice> op_price(const Graph& graph, const Op& op, const Rule& rule,
                           const Assignment& assignment, const OpSpecs& specs) override;
  ReshardTable reshard_prices(const Shape& shape, DType dtype, const std::vector<Spec>& from,
                              const std::vector<Spec>& to) override;
  // The steps of the cheapest real reshard; the first one carries the whole relative cost.
  std::vector<PricedCollective> reshard_steps(const Shape& shape, DType dtype, const Spec& from,
                                              const Spec& to) override;

 private:
  double reshard_cost(const Shape& shape, const Spec& from, const Spec& to) const;

  RooflineModel paths_;
};

}  // namespace autopar
