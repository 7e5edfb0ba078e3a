#include "search/build/weighted_prices.hpp"

namespace autopar {

ReshardWeights everything_times(double times) {
  ReshardWeights weights{times};
  weights.sums.fill(times);
  weights.others.fill(times);
  return weights;
}

WeightedPrices::WeightedPrices(const SearchRequest& request, const CostModel& model)
    : request_(request), graph_(request.graph), model_(model) {
  if (request.weights) {
    streams_.emplace(graph_, request.updates, model.mesh(), model.cluster().profile);
  }
}

double WeightedPrices::of_op(OpId id, const OpPrice& price) const {
  if (!streams_) return price.total() * times(id);
  using Kind = Streams::Kind;
  const Profile& profile = model_.cluster().profile;
  const double compute = weight_of(Kind::kCompute, {}, id, 0);
  const Seconds issuing = streams_->issuing(id) * weights_at(id).host;
  double sum = price.compute * compute + (graph_.kernel(graph_.op(id)).launches ? issuing : 0);
  for (const PricedCollective& c : price.collectives) {
    if (!communicates(c.collective.kind)) {
      sum += c.seconds * compute;
      continue;
    }
    const Seconds latency =
        streams_->in_buckets({}, id)
            ? collective_seconds(c.collective, 1, model_.mesh(), model_.cluster())
            : 0;
    const Seconds saved = saved_in_bucket(profile, c.seconds, latency, c.sent_bytes);
    const int link = link_of(c.collective.axes, model_.mesh());
    sum += (c.seconds - saved) * weight_of(Kind::kBlocking, {}, id, link);
    sum += behind_at(Kind::kBlocking, id, link);
    sum += streams_->issuing(Kind::kBlocking, id, axes_size(model_.mesh(), c.collective.axes)) *
           weights_at(id).host;
  }
  return sum;
}

ReshardWeights WeightedPrices::of_reshards(ValueId id, OpId when) const {
  const double runs = graph_.kernel(graph_.op(when)).runs;
  ReshardWeights weights{runs * weight_of(Streams::Kind::kCompute, id, when, 0)};
  for (int link = 0; link < kLinks; ++link) {
    const auto of = [&](CollectiveKind kind) {
      return runs * weight_of(streams_->kind(id, when, kind), id, when, link);
    };
    weights.sums[static_cast<std::size_t>(link)] = of(CollectiveKind::kAllReduce);
    weights.others[static_cast<std::size_t>(link)] = of(CollectiveKind::kAllGather);
    const auto behind = [&](CollectiveKind kind) {
      return behind_at(streams_->kind(id, when, kind), when, link);
    };
    weights.more_sums[static_cast<std::size_t>(link)] = behind(CollectiveKind::kAllReduce);
    weights.more_others[static_cast<std::size_t>(link)] = behind(CollectiveKind::kAllGather);
  }
  weights.in_buckets = streams_->in_buckets(id, when);
  weights.issuing = streams_->issuing(when) * weights_at(when).host;
  const double host = streams_->runs(when) * weights_at(when).host;
  const auto waited = [&](CollectiveKind kind) {
    return streams_->holds_host(streams_->kind(id, when, kind), when) ? host : 0;
  };
  weights.waited_sums = waited(CollectiveKind::kAllReduce);
  weights.waited_others = waited(CollectiveKind::kAllGather);
  return weights;
}

const StreamTimes& WeightedPrices::weights_at(OpId when) const {
  return request_.prices_of_ops == nullptr ? *request_.weights
                                           : (*request_.prices_of_ops)[when.index()].weights;
}

// Where compute waits for a collective over a link: for what goes over it before.
double WeightedPrices::behind_at(Streams::Kind kind, OpId when, int link) const {
  if (request_.prices_of_ops == nullptr || kind != Streams::Kind::kBlocking) return 0;
  const StreamPrices& prices = (*request_.prices_of_ops)[when.index()];
  return prices.weights.compute * prices.behind[static_cast<std::size_t>(link)] * times(when);
}

// A second of a kernel, or of a collective of a reshard.
double WeightedPrices::weight_of(Streams::Kind kind, ValueId value, OpId when, int link) const {
  return streams_->shares(kind, value, when, link).weighted(weights_at(when));
}

}  // namespace autopar
