#include "planning/pipelines/template_units.hpp"

#include <future>

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

namespace {

constexpr const char* kAmple = "1000TiB";

Result<Inputs> inputs_of(const Inputs& step, const Cluster& stage, const Graph& graph) {
  Inputs inputs = step;
  inputs.cluster = stage;
  AUTOPAR_TRY(rules, rules_of(graph, inputs.user_rules));
  inputs.model.graph = graph;
  inputs.rules = std::move(rules);
  return inputs;
}

Bytes stored_bytes(const Planned& planned) {
  const Graph& graph = planned.request->graph;
  const std::vector<ValueId> updated = updated_inputs(graph, planned.request->updates);
  std::set<ValueId> stored(updated.begin(), updated.end());
  Bytes bytes = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (stored.count(ValueId(static_cast<std::int64_t>(v))) == 0) continue;
    bytes += local_bytes(planned.outcome.strategy.values[v].spec, value.shape, value.dtype,
                         planned.outcome.strategy.mesh);
  }
  return bytes;
}

}  // namespace

std::string to_text(const StageTemplate& wanted) {
  return "dp=" + std::to_string(wanted.data) + " tp=" + std::to_string(wanted.tensor) +
         (wanted.tensor > 1 ? " sp" : "") + " zero=" + std::to_string(wanted.zero);
}

Result<TemplateUnits> TemplateUnits::of(const Inputs& step, const OpSeconds& seconds,
                                        const PlanOptions& options) {
  const Graph& graph = step.model.graph;
  std::vector<Seconds> of_ops(seconds.forward);
  for (std::size_t o = 0; o < of_ops.size(); ++o) of_ops[o] += seconds.backward[o];
  const std::vector<OpId> places = like_cuts(graph, options.updates);
  if (places.size() < 2) {
    return infeasible_error(
        "templates of pipelines are cut between layers that are alike, of which the step has none");
  }
  TemplateUnits units;
  units.count_ = places.size() + 1;
  units.compute_.assign(units.count_, 0);
  std::size_t unit = 0;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (unit < places.size() && o == places[unit].index()) ++unit;
    if (graph.ops[o].phase == Phase::kForward) units.compute_[unit] += of_ops[o];
  }
  std::vector<OpId> cuts = {places[0], places[1]};
  if (places.size() > 2) cuts.push_back(places.back());
  AUTOPAR_TRY(chunks, chunks_of(graph, cuts, options.updates));
  units.graphs_ = {std::move(chunks.chunks[0].graph), std::move(chunks.chunks[1].graph),
                   std::move(chunks.chunks.back().graph)};
  for (const Handed& handed : chunks.handed) {
    if (handed.in_pass && handed.from == 0) units.handed_.push_back(handed.value);
  }
  return units;
}

Result<UnitPrice> TemplateUnits::price_of(std::size_t place, const Inputs& step,
                                          const Cluster& stage, const StageTemplate& wanted,
                                          const PlanOptions& options,
                                          const CommonOptions& common) const {
  AUTOPAR_TRY(inputs, inputs_of(step, stage, graphs_[place]));
  inputs.model.graph.in_flight = 1;
  PlanOptions own = options;
  own.searcher = "uniform:" + to_text(wanted);
  own.recompute = name_of(wanted.recompute);
  own.training.micro_batches = std::to_string(graphs_[place].passes);
  CommonOptions ample = common;
  ample.memory = kAmple;
  ample.threads = 1;
  PhaseClock clock;
  AUTOPAR_TRY(planned, best_of_forms(std::make_unique<Inputs>(inputs), own, own, {}, ample,
                                     std::chrono::steady_clock::now(), clock));
  inputs.model.graph.in_flight = 2;
  AUTOPAR_TRY(twice,
              planned_like(std::make_unique<Inputs>(std::move(inputs)), planned, own, {}, ample));
  UnitPrice price;
  price.cost = chunk_cost(planned, {});
  const Bytes once = planned.outcome.cost.memory.total;
  price.stored = std::min(once, stored_bytes(planned));
  price.kept = std::max<Bytes>(0, twice.outcome.cost.memory.total - once);
  price.beside = std::max<Bytes>(0, once - price.stored - price.kept);
  if (place != 0) return price;
  const Graph& graph = planned.request->graph;
  double bytes = 0;
  for (ValueId id : graph.outputs) {
    const Value& value = graph.value(id);
    if (std::find(handed_.begin(), handed_.end(), value.name) == handed_.end()) continue;
    const ValueSpecs& specs = planned.outcome.strategy.values[id.index()];
    bytes += static_cast<double>(
        local_bytes(specs.output, value.shape, value.dtype, planned.outcome.strategy.mesh));
  }
  const Tier& tier = tier_between(step.cluster, stage);
  price.cost.send_forward = price.cost.send_backward =
      tier.latency_s + bytes / tier.bandwidth_bytes_per_s;
  return price;
}

Result<UnitPrices> TemplateUnits::priced(const Inputs& step, const Cluster& stage,
                                         const StageTemplate& wanted, const PlanOptions& options,
                                         const CommonOptions& common) const {
  const auto policy = threads_of_search(common) > 1 ? std::launch::async : std::launch::deferred;
  std::array<std::future<Result<UnitPrice>>, 3> found;
  for (std::size_t place = 0; place < 3; ++place) {
    found[place] = std::async(
        policy, [&, place] { return price_of(place, step, stage, wanted, options, common); });
  }
  UnitPrices prices;
  std::optional<Error> error;
  for (std::size_t place = 0; place < 3; ++place) {
    auto price = found[place].get();
    if (price) {
      prices[place] = *price;
    } else if (!error) {
      error = price.error();
    }
  }
  if (error) return *error;
  for (UnitPrice& price : prices) {
    price.cost.send_forward = prices[0].cost.send_forward;
    price.cost.send_backward = prices[0].cost.send_backward;
  }
  return prices;
}

}  // namespace autopar
