// What ops and reshards count in what is minimised: their seconds, or, where the busy times of
// streams are weighted, what these say.
#pragma once

#include <optional>

#include "autopar/search.hpp"
#include "autopar/streams.hpp"

namespace autopar {

ReshardWeights everything_times(double times);

class WeightedPrices {
 public:
  WeightedPrices(const SearchRequest& request, const CostModel& model);

  bool are_weighted() const { return streams_.has_value(); }
  // Of an op, in all its passes.
  double of_op(OpId id, const OpPrice& price) const;
  // Of the reshards of a value when the op runs. Precondition: are_weighted().
  ReshardWeights of_reshards(ValueId id, OpId when) const;

 private:
  double times(OpId when) const { return static_cast<double>(graph_.times(graph_.op(when))); }
  const StreamTimes& weights_at(OpId when) const;
  double behind_at(Streams::Kind kind, OpId when, int link) const;
  double weight_of(Streams::Kind kind, ValueId value, OpId when, int link) const;

  const SearchRequest& request_;
  const Graph& graph_;
  const CostModel& model_;
  std::optional<Streams> streams_;  // where their busy times are weighted
};

}  // namespace autopar
