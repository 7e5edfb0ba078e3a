#include "autopar/cost.hpp"

namespace autopar {

Seconds OpPrice::total() const {
  Seconds sum = compute;
  for (const PricedCollective& c : collectives) sum += c.seconds;
  return sum;
}

void CostModel::limit(Allowance*) {}

ReshardTable CostModel::weighted_reshard_prices(const Shape& shape, DType dtype,
                                                const std::vector<Spec>& from,
                                                const std::vector<Spec>& to,
                                                const ReshardWeights& weights) {
  ReshardTable table = reshard_prices(shape, dtype, from, to);
  table.weighted.reserve(table.seconds.size());
  for (const Seconds seconds : table.seconds) table.weighted.push_back(seconds * weights.local);
  return table;
}

Seconds CostModel::breaking_seconds(const Shape&, DType, const Spec&, const Spec&) const {
  return 0;
}

std::vector<Assignment> CostModel::choices(const Op&, const Rule& rule) const {
  return candidates(rule, mesh());
}

bool CostModel::prices_moving() const { return false; }

std::vector<Assignment> CostModel::choices_of_pin(const Op&, const Rule& rule) const {
  return candidates(rule, mesh());
}

bool CostModel::leaves_out(const Rule&) const { return false; }

bool CostModel::may_reshard(const Graph&, const Value&, Leg) const { return true; }

bool CostModel::has_free_boundary(const Value&, bool) const { return true; }

std::vector<double> CostModel::follower_prices(const Graph&, const Op&,
                                               const std::vector<OpSpecs>&) const {
  return {};
}

TieBreak CostModel::break_ties(const Problem&, const std::vector<int>&, Solution best,
                               const SolveOptions&) const {
  return {std::move(best), {}};
}

}  // namespace autopar
