#include "cli/pipeline_plan.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "autopar/kernels.hpp"

namespace autopar::cli {

namespace {

// Of each forward op, with the backward ops that its gradient takes, on one device of the cluster:
// what balanced_cuts() weighs.
Result<std::vector<Seconds>> seconds_of_ops(const Inputs& inputs, const PlanOptions& options) {
  Cluster one = inputs.cluster;
  one.tiers.resize(1);
  one.tiers.front().size = 1;
  const Mesh mesh = mesh_candidates(one, 1).front();
  AUTOPAR_TRY(model, make_cost_model("roofline", one, mesh));
  Graph graph = inputs.model.graph;
  graph.kernels = group_kernels(graph, one.profile, options.updates);
  std::vector<Seconds> seconds(graph.ops.size());
  std::map<std::string, std::size_t> forward;
  std::size_t last = 0;  // forward op
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::kUpdate) continue;
    const Rule& rule = inputs.rules.rules[o];
    const Assignment whole{{-1}};
    const auto specs = specs_of(rule, whole, mesh);
    AUTOPAR_CHECK(specs.has_value(), "an op that is whole on one device");
    AUTOPAR_TRY(price, model->op_price(graph, op, rule, whole, *specs));
    // What is of no forward op is of the loss.
    if (op.phase == Phase::kForward) forward[op.name] = last = o;
    const auto known = forward.find(op.name.substr(0, op.name.rfind(".grad")));
    seconds[op.phase == Phase::kForward || known == forward.end() ? last : known->second] +=
        price.compute;
  }
  return seconds;
}

// How long the parts of a chunk's step take, as its timeline has them: a phase of a pass ends where
// compute begins with the next one.
class PhaseSeconds {
 public:
  PhaseSeconds(const SearchRequest& request, const SearchOutcome& outcome)
      : graph_(request.graph), cost_(outcome.cost) {
    const std::vector<StepEvent> events =
        step_events(graph_, cost_, outcome.strategy.mesh, request.cluster, request.updates);
    begins_.resize(static_cast<std::size_t>(graph_.passes));
    for (const StepEvent& event : events) {
      const Phase phase = phase_of(event);
      if (phase == Phase::kUpdate || event.stream != StepEvent::Stream::kCompute) continue;
      Begins& of = begins_[static_cast<std::size_t>(event.pass)];
      Seconds& begin = phase == Phase::kForward ? of.forward : of.backward;
      begin = std::min(begin, event.begin);
      end_ = std::max(end_, event.begin + event.seconds);
    }
    update_ = std::max(0.0, cost_.time() - end_);
  }

  Seconds update() const { return update_; }

  PassSeconds of_pass(std::int64_t pass) const {
    const auto at = static_cast<std::size_t>(pass);
    const Begins& of = begins_[at];
    const Seconds next = at + 1 < begins_.size() ? begins_[at + 1].first() : end_;
    const Seconds backward = std::min(of.backward, next);
    PassSeconds found;
    found.forward = std::max(0.0, backward - of.first());
    found.backward = std::max(0.0, next - backward);
    return found;
  }

 private:
  struct Begins {
    Seconds forward = kInfinity, backward = kInfinity;
    Seconds first() const { return std::min(forward, backward); }
  };

  Phase phase_of(const StepEvent& event) const {
    const CostTerm& term = cost_.terms[event.term];
    const OpId when = term.op.valid() ? term.op : graph_.value(term.value).producer;
    return when.valid() ? graph_.op(when).phase : Phase::kForward;
  }

  const Graph& graph_;
  const StrategyCost& cost_;
  std::vector<Begins> begins_;  // per pass
  Seconds end_ = 0;             // of the last pass
  Seconds update_ = 0;
};

class Pipeline {
 public:
  Pipeline(std::unique_ptr<Inputs> inputs, const PlanOptions& given, const PlanOptions& options,
           const std::optional<StrategyFile>& pins, const CommonOptions& common,
           std::chrono::steady_clock::time_point begin, PhaseClock& clock)
      : whole_(std::move(inputs)),
        given_(given),
        options_(options),
        pins_(pins),
        common_(common),
        begin_(begin),
        clock_(clock) {}

  Result<PipelinePlan> run() {
    const Graph& step = whole_->model.graph;
    plan_.stages = options_.stages;
    AUTOPAR_TRY(stage, stage_of(whole_->cluster, plan_.stages));
    plan_.stage = std::move(stage);
    AUTOPAR_TRY(kind, kind_of(options_.schedule));
    plan_.kind = kind;
    AUTOPAR_TRY(schedule, make_schedule(kind, {plan_.stages, 1, step.passes}));
    plan_.schedule = std::move(schedule);
    AUTOPAR_TRY(seconds, seconds_of_ops(*whole_, options_));
    AUTOPAR_TRY(cuts, balanced_cuts(step, static_cast<int>(plan_.stages), seconds,
                                    between_stages().bandwidth_bytes_per_s, options_.updates));
    AUTOPAR_TRY(chunks, chunks_of(step, cuts, options_.updates));
    plan_.handed = chunks.handed;
    const InFlight flying = in_flight(plan_.schedule);
    for (std::size_t c = 0; c < chunks.chunks.size(); ++c) {
      chunks.chunks[c].graph.in_flight = flying.of_chunk[c];
      AUTOPAR_RETURN_IF_ERROR(plan_chunk(c, std::move(chunks.chunks[c])));
    }
    for (std::size_t c = 0; c < plan_.chunks.size(); ++c) price(c);
    const bool reduces =
        std::any_of(plan_.chunks.begin(), plan_.chunks.end(),
                    [](const ChunkPlan& chunk) { return !chunk.reduce_ops.empty(); });
    add_updates(plan_.schedule, reduces);
    if (reduces) drop_missing_reductions();
    std::vector<ChunkCost> costs;
    for (const ChunkPlan& chunk : plan_.chunks) costs.push_back(chunk.cost);
    AUTOPAR_TRY(times, simulate_schedule(plan_.schedule, costs));
    plan_.times = std::move(times);
    return std::move(plan_);
  }

 private:
  static Result<ScheduleKind> kind_of(const std::string& name) {
    const auto kind = parse_schedule_kind(name);
    const bool planned = kind == ScheduleKind::kGPipe || kind == ScheduleKind::k1F1B;
    if (kind && planned) return *kind;
    return usage_error("--schedule '" + name + "': expected gpipe or 1f1b" +
                       (kind ? "; what has several chunks on a stage, or a backward pass in two "
                               "parts, is not planned"
                             : ""));
  }

  // What is read of a chunk alone.
  std::unique_ptr<Inputs> inputs_of(Graph graph) const {
    auto inputs = std::make_unique<Inputs>(*whole_);
    inputs->model.graph = std::move(graph);
    inputs->cluster = plan_.stage;
    inputs->training_bytes.clear();
    return inputs;
  }

  // Those of what the chunk has.
  std::optional<StrategyFile> pins_of(const Graph& graph) const {
    if (!pins_) return {};
    std::set<std::string> ops, values;
    for (const Op& op : graph.ops) ops.insert(op.name);
    for (const Value& value : graph.values) values.insert(value.name);
    StrategyFile file = *pins_;
    std::erase_if(file.pins.ops, [&](const auto& pin) { return ops.count(pin.first) == 0; });
    std::erase_if(file.pins.values, [&](const auto& pin) { return values.count(pin.first) == 0; });
    std::erase_if(file.op_types, [&](const auto& type) { return ops.count(type.first) == 0; });
    return file;
  }

  Status plan_chunk(std::size_t c, Chunk chunk) {
    const std::optional<StrategyFile> pins = pins_of(chunk.graph);
    auto inputs = inputs_of(chunk.graph);
    auto rules = rules_of(inputs->model.graph, inputs->user_rules);
    if (!rules) return rules.error();
    inputs->rules = std::move(*rules);
    ChunkPlan found;
    found.reduce_ops = std::move(chunk.reduce_ops);
    for (const Op& op : chunk.graph.ops) {
      if (op.phase != Phase::kForward) continue;
      found.first_and_last.resize(2);
      if (found.first_and_last[0].empty()) found.first_and_last[0] = op.name;
      found.first_and_last[1] = op.name;
    }
    // Of those that are alike the first has the most in flight.
    for (std::size_t d = 0; d < c && found.alike < 0; ++d) {
      const bool searched = plan_.chunks[d].alike < 0;
      if (searched && same_values(graphs_[d], chunk.graph)) found.alike = static_cast<int>(d);
    }
    graphs_.push_back(std::move(chunk.graph));
    PlanOptions options = options_;
    options.training.micro_batches = std::to_string(whole_->model.graph.passes);
    auto planned =
        found.alike >= 0
            ? planned_like(std::move(inputs),
                           *plan_.chunks[static_cast<std::size_t>(found.alike)].planned, options,
                           pins, common_)
            : best_of_forms(std::move(inputs), given_, options, pins, common_, begin_, clock_);
    if (!planned) {
      Error error = planned.error();
      error.message = "stage " + std::to_string(c) + " of " + std::to_string(plan_.stages) + " (" +
                      found.first_and_last.front() + " to " + found.first_and_last.back() +
                      "): " + error.message;
      return error;
    }
    found.planned = std::make_unique<Planned>(std::move(*planned));
    const StrategyCost& cost = found.planned->outcome.cost;
    plan_.peak_bytes = std::max(plan_.peak_bytes, cost.memory.total);
    plan_.upper_bytes = plan_.stage.profile.upper_memory(plan_.peak_bytes);
    plan_.chunks.push_back(std::move(found));
    return Ok{};
  }

  void price(std::size_t c) {
    ChunkPlan& chunk = plan_.chunks[c];
    const SearchRequest& request = *chunk.planned->request;
    const PhaseSeconds phases(request, chunk.planned->outcome);
    const std::int64_t passes = request.graph.passes;
    chunk.cost.steady = phases.of_pass(passes > 2 ? 1 : 0);
    chunk.cost.first = phases.of_pass(0);
    chunk.cost.last = phases.of_pass(passes - 1);
    chunk.cost.update = phases.update();
    chunk.cost.send_forward = sent_by(c, true);
    chunk.cost.send_backward = sent_by(c, false);
  }

  // Each rank sends its part of what it has to the rank of the same place.
  Seconds sent_by(std::size_t c, bool forward) const {
    const Planned& planned = *plan_.chunks[c].planned;
    const Graph& graph = planned.request->graph;
    double bytes = 0;
    for (const Handed& handed : plan_.handed) {
      if (!handed.in_pass || handed.from != static_cast<int>(c)) continue;
      const bool is_forward = handed.to.back() > handed.from;
      if (is_forward != forward) continue;
      for (ValueId id : graph.outputs) {
        const Value& value = graph.value(id);
        if (value.name != handed.value) continue;
        const Spec& spec = planned.outcome.strategy.values[id.index()].output;
        bytes += static_cast<double>(
            local_bytes(spec, value.shape, value.dtype, planned.outcome.strategy.mesh));
      }
    }
    if (bytes == 0) return 0;
    const Tier& tier = between_stages();
    return tier.latency_s + bytes / tier.bandwidth_bytes_per_s;
  }

  // The innermost tier that a stage does not fill.
  const Tier& between_stages() const {
    std::int64_t size = 1;
    for (const Tier& tier : whole_->cluster.tiers) {
      size *= tier.size;
      if (size > plan_.stage.device_count()) return tier;
    }
    return whole_->cluster.tiers.back();
  }

  void drop_missing_reductions() {
    for (StepLine& line : plan_.schedule.lines) {
      std::erase_if(line, [&](const StepAction& action) {
        return action.phase == StepPhase::kReduce &&
               plan_.chunks[static_cast<std::size_t>(action.chunk)].reduce_ops.empty();
      });
    }
  }

  std::unique_ptr<Inputs> whole_;
  const PlanOptions& given_;
  const PlanOptions& options_;
  const std::optional<StrategyFile>& pins_;
  const CommonOptions& common_;
  const std::chrono::steady_clock::time_point begin_;
  PhaseClock& clock_;
  std::vector<Graph> graphs_;  // of the chunks, as they were cut
  PipelinePlan plan_;
};

}  // namespace

Result<Cluster> stage_of(const Cluster& cluster, std::int64_t stages) {
  Cluster stage = cluster;
  std::int64_t left = stages;
  for (std::size_t t = stage.tiers.size(); t-- > 0 && left > 1;) {
    Tier& tier = stage.tiers[t];
    const std::int64_t parts = std::gcd(tier.size, left);
    tier.size /= parts;
    left /= parts;
    if (tier.size > 1 && left > 1) break;
  }
  if (left > 1) {
    return usage_error("--stages " + std::to_string(stages) +
                       " does not divide the tiers of cluster '" + cluster.name +
                       "', the outermost first");
  }
  std::vector<Tier> tiers = {stage.tiers.front()};
  for (std::size_t t = 1; t < stage.tiers.size(); ++t) {
    if (stage.tiers[t].size > 1) tiers.push_back(stage.tiers[t]);
  }
  stage.tiers = std::move(tiers);
  return stage;
}

Result<PipelinePlan> plan_pipeline(std::unique_ptr<Inputs> inputs, const PlanOptions& given,
                                   const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common,
                                   std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  return Pipeline(std::move(inputs), given, options, pins, common, begin, clock).run();
}

}  // namespace autopar::cli
