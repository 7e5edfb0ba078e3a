#include "planning/pipelines/chunk_cost.hpp"

#include <algorithm>
#include <map>

namespace autopar {

namespace {

class PhaseSeconds {
 public:
  PhaseSeconds(const SearchRequest& request, const SearchOutcome& outcome,
               const std::vector<char>& weight_ops)
      : graph_(request.graph), cost_(outcome.cost), weight_ops_(weight_ops) {
    const std::vector<StepEvent> events =
        step_events(graph_, cost_, outcome.strategy.mesh, request.cluster, request.updates);
    passes_.resize(static_cast<std::size_t>(graph_.passes));
    for (const StepEvent& event : events) {
      const OpId op = op_of(event);
      const Phase phase = op.valid() ? graph_.op(op).phase : Phase::kForward;
      if (phase == Phase::kUpdate || event.stream != StepEvent::Stream::kCompute) continue;
      Pass& of = passes_[static_cast<std::size_t>(event.pass)];
      Seconds& begin = phase == Phase::kForward ? of.forward : of.backward;
      begin = std::min(begin, event.begin);
      end_ = std::max(end_, event.begin + event.seconds);
      if (phase == Phase::kForward || weight_ops_.empty()) continue;
      (weight_ops_[op.index()] != 0 ? of.weights : of.inputs) += event.seconds;
    }
    update_ = std::max(0.0, cost_.time() - end_);
  }

  Seconds update() const { return update_; }

  PassSeconds of_pass(std::int64_t pass) const {
    const auto at = static_cast<std::size_t>(pass);
    const Pass& of = passes_[at];
    const Seconds next = at + 1 < passes_.size() ? passes_[at + 1].first() : end_;
    const Seconds backward = std::min(of.backward, next);
    PassSeconds found;
    found.forward = std::max(0.0, backward - of.first());
    found.backward = std::max(0.0, next - backward);
    if (weight_ops_.empty()) return found;
    const Seconds busy = of.inputs + of.weights;
    found.weight_gradients = busy > 0 ? found.backward * of.weights / busy : 0;
    found.input_gradients = found.backward - found.weight_gradients;
    return found;
  }

 private:
  struct Pass {
    Seconds forward = kInfinity, backward = kInfinity;  // when they begin
    Seconds first() const { return std::min(forward, backward); }
    Seconds inputs = 0, weights = 0;  // compute of the backward pass
  };

  OpId op_of(const StepEvent& event) const {
    const CostTerm& term = cost_.terms[event.term];
    return term.op.valid() ? term.op : graph_.value(term.value).producer;
  }

  const Graph& graph_;
  const StrategyCost& cost_;
  const std::vector<char>& weight_ops_;
  std::vector<Pass> passes_;
  Seconds end_ = 0;  // of the last pass
  Seconds update_ = 0;
};

}  // namespace

namespace {

// Prices of ops that one device has whole.
class WholeOps {
 public:
  static Result<WholeOps> on(Cluster one) {
    one.tiers.resize(1);
    one.tiers.front().size = 1;
    const Mesh mesh = mesh_candidates(one, 1).front();
    AUTOPAR_TRY(model, make_cost_model("roofline", one, mesh));
    return WholeOps(mesh, std::move(model));
  }
  Result<Seconds> seconds(const Graph& graph, const Op& op, const Rule& rule) const {
    const Assignment whole{{-1}};
    const auto specs = specs_of(rule, whole, mesh_);
    AUTOPAR_CHECK(specs.has_value(), "an op that is whole on one device");
    AUTOPAR_TRY(price, model_->op_price(graph, op, rule, whole, *specs));
    return price.compute;
  }

 private:
  WholeOps(Mesh mesh, std::unique_ptr<CostModel> model)
      : mesh_(std::move(mesh)), model_(std::move(model)) {}
  Mesh mesh_;
  std::unique_ptr<CostModel> model_;
};

}  // namespace

Result<OpSeconds> seconds_of_ops(const Inputs& inputs, const Graph& step,
                                 const std::string& updates) {
  AUTOPAR_TRY(whole, WholeOps::on(inputs.cluster));
  const std::vector<Seconds> none(step.ops.size());
  OpSeconds seconds{none, none, none};
  const std::vector<char> of_weights = weight_gradient_ops(step, updates);
  std::map<std::string, std::size_t> forward;
  std::size_t last = 0;  // forward op
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const Op& op = step.ops[o];
    if (op.phase == Phase::kUpdate) continue;
    AUTOPAR_TRY(price, whole.seconds(step, op, inputs.rules.rules[o]));
    if (op.phase == Phase::kForward) {
      forward[op.name] = last = o;
      seconds.forward[o] = price;
      continue;
    }
    const auto known = forward.find(op.name.substr(0, op.name.rfind(".grad")));
    const std::size_t owner = known == forward.end() ? last : known->second;
    seconds.backward[owner] += price;
    if (of_weights[o] == 0) seconds.inputs[owner] += price;
  }
  return seconds;
}

Result<std::vector<Seconds>> seconds_again(const Inputs& inputs, const Graph& graph) {
  AUTOPAR_TRY(whole, WholeOps::on(inputs.cluster));
  Graph later = graph;
  for (Op& op : later.ops) op.phase = Phase::kBackward;
  std::vector<Seconds> seconds(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    const bool is_inside = std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
      return output.valid() && graph.is_inside(output);
    });
    if (op.phase != Phase::kForward || !is_contraction(op) || is_inside) continue;
    const Rule& rule = inputs.rules.rules[o];
    AUTOPAR_TRY(once, whole.seconds(graph, op, rule));
    AUTOPAR_TRY(again, whole.seconds(later, later.ops[o], rule));
    seconds[o] = std::min(once, again);
  }
  return seconds;
}

ChunkCost chunk_cost(const Planned& planned, const std::vector<char>& weight_ops) {
  const SearchRequest& request = *planned.request;
  const PhaseSeconds phases(request, planned.outcome, weight_ops);
  const std::int64_t passes = request.graph.passes;
  ChunkCost cost;
  cost.steady = phases.of_pass(passes > 2 ? 1 : 0);
  cost.first = phases.of_pass(0);
  cost.last = phases.of_pass(passes - 1);
  cost.update = phases.update();
  return cost;
}

}  // namespace autopar
