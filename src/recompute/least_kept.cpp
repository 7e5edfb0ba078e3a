#include "recompute/least_kept.hpp"

#include <algorithm>
#include <numeric>

#include "recompute/cut.hpp"

namespace autopar {

// Value v is an arc of what keeping it takes, from node 2v (made again) to 2v + 1 (there in the
// backward pass); an op that is repeated is on the far side, which takes what it costs, and so are
// all that it reads. What a backward op reads is there.
LeastKept least_kept(const Graph& graph, Recompute what, const KeepPrices& prices) {
  const Repeatable repeatable(graph);
  const auto in_network = [&](ValueId id) {
    if (!id.valid() || repeatable.is_ready(id)) return false;
    const OpId producer = graph.value(id).producer;
    return producer.valid() && graph.op(producer).phase == Phase::kForward;
  };
  // Whole numbers that hold the sum of all prices; rounded down, so that the sum is no more than
  // the least.
  constexpr double kSteps = 1e12;
  const double all = std::accumulate(prices.keep.begin(), prices.keep.end(), 0.0) +
                     std::accumulate(prices.repeat.begin(), prices.repeat.end(), 0.0);
  const double step = all > 0 ? all / kSteps : 1;
  const auto whole = [&](double price) { return static_cast<std::int64_t>(price / step); };

  const auto values = graph.values.size();
  const auto source = static_cast<int>(2 * values + graph.ops.size()), sink = source + 1;
  MinimumCut network(sink + 1);
  const auto made = [](ValueId id) { return static_cast<int>(2 * id.value); };
  const auto there = [&](ValueId id) { return made(id) + 1; };
  const auto done = [&](std::size_t o) { return static_cast<int>(2 * values + o); };
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    const bool is_forward = op.phase == Phase::kForward;
    for (const ValueId input : op.inputs) {
      if (!in_network(input)) continue;
      network.connect(there(input), is_forward ? done(o) : sink, MinimumCut::kUnlimited);
    }
    if (!is_forward) continue;
    network.connect(
        source, done(o),
        repeatable.may_repeat(op, what) ? whole(prices.repeat[o]) : MinimumCut::kUnlimited);
    for (const ValueId output : op.outputs) {
      if (!in_network(output)) continue;
      network.connect(done(o), made(output), MinimumCut::kUnlimited);
      network.connect(made(output), there(output), whole(prices.keep[output.index()]));
    }
  }
  const std::vector<bool> far = network.far_side(source, sink);
  LeastKept least;
  least.keeps.assign(values, 0);
  std::int64_t sum = 0;
  for (std::size_t v = 0; v < values; ++v) {
    if (far[2 * v] || !far[2 * v + 1]) continue;
    least.keeps[v] = 1;
    sum += whole(prices.keep[v]);
  }
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (far[2 * values + o]) sum += whole(prices.repeat[o]);
  }
  least.sum = static_cast<double>(sum) * step;
  return least;
}

}  // namespace autopar
