#include "planning/pipelines/chunk_cost.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "autopar/step_events.hpp"

namespace autopar {

PhaseBegins phase_begins(const Graph& graph, const StrategyCost& cost,
                         const std::vector<StepEvent>& events) {
  PhaseBegins found(graph.passes);
  for (const StepEvent& event : events) found.add(event, graph, cost);
  return found;
}

void PhaseBegins::add(const StepEvent& event, const Graph& graph, const StrategyCost& cost) {
  if (event.stream != StepEvent::Stream::kCompute) return;
  const OpId op = when_of(cost.terms[event.term], graph);
  const Phase phase = op.valid() ? graph.op(op).phase : Phase::kForward;
  if (phase == Phase::kUpdate) return;
  OfPass& of = of_pass[static_cast<std::size_t>(event.pass)];
  Seconds& begin = phase == Phase::kForward ? of.forward : of.backward;
  begin = std::min(begin, event.begin);
  end = std::max(end, event.begin + event.seconds);
}

namespace {

class PhaseSeconds {
 public:
  PhaseSeconds(const SearchRequest& request, const Mesh& mesh, const StrategyCost& cost,
               const std::vector<char>& weight_ops)
      : graph_(request.graph),
        cost_(cost),
        weight_ops_(weight_ops),
        passes_(static_cast<std::size_t>(request.graph.passes)),
        begins_(request.graph.passes) {
    visit_step_events(graph_, cost_, mesh, request.cluster, request.updates,
                      [&](const StepEvent& event) { add(event); });
    update_ = std::max(0.0, cost_.time() - begins_.end);
  }

  Seconds update() const { return update_; }

  double room_to_fetch() const {
    if (cost_.limit == 0) return 1;
    Bytes fetched = 0;
    ValueId last;
    for (const CostTerm& term : cost_.terms) {
      if (!term.value.valid() || !term.op.valid() || term.value == last) continue;
      if (graph_.value(term.value).kind != ValueKind::kParameter) continue;
      if (graph_.op(term.op).phase != Phase::kForward) continue;
      fetched += term.temporaries;
      last = term.value;
    }
    const Bytes room = cost_.most_held() - cost_.held.front();
    return room >= fetched ? 1 : static_cast<double>(room) / static_cast<double>(fetched);
  }

  ForwardLinks links(std::int64_t steady) const {
    ForwardLinks found{passes_[static_cast<std::size_t>(steady)].links,
                       {},
                       begins_.of_pass[0].first(),
                       room_to_fetch()};
    for (std::size_t l = 0; l < kLinks; ++l) {
      found.fetching[l] = std::max(0.0, passes_[0].links[l] - found.of_pass[l]);
    }
    return found;
  }

  PassSeconds of_pass(std::int64_t pass) const {
    const auto at = static_cast<std::size_t>(pass);
    const Pass& of = passes_[at];
    const std::vector<PhaseBegins::OfPass>& begins = begins_.of_pass;
    const Seconds next = at + 1 < begins.size() ? begins[at + 1].first() : begins_.end;
    const Seconds backward = std::min(begins[at].backward, next);
    // Before compute can begin at all, the first pass waits for its first weights.
    const Seconds begin = at == 0 ? 0 : begins[at].first();
    PassSeconds found;
    found.forward = std::max(0.0, backward - begin);
    found.backward = std::max(0.0, next - backward);
    if (weight_ops_.empty()) return found;
    const Seconds busy = of.inputs + of.weights;
    found.weight_gradients = busy > 0 ? found.backward * of.weights / busy : 0;
    found.input_gradients = std::max(0.0, found.backward - found.weight_gradients);
    return found;
  }

 private:
  struct Pass {
    Seconds inputs = 0, weights = 0;         // compute of the backward pass
    std::array<Seconds, kLinks> links = {};  // of the forward pass
  };

  void add(const StepEvent& event) {
    if (event.stream == StepEvent::Stream::kHost) return;
    begins_.add(event, graph_, cost_);
    const OpId op = when_of(cost_.terms[event.term], graph_);
    const Phase phase = op.valid() ? graph_.op(op).phase : Phase::kForward;
    if (event.stream == StepEvent::Stream::kLink) {
      // In a pass the links of updates are busy with the weights of the step before.
      if (event.pass == graph_.passes || phase == Phase::kBackward) return;
      Pass& of = passes_[static_cast<std::size_t>(event.pass)];
      of.links[static_cast<std::size_t>(event.link)] += event.alone;
    } else if (phase == Phase::kBackward && !weight_ops_.empty()) {
      Pass& of = passes_[static_cast<std::size_t>(event.pass)];
      (weight_ops_[op.index()] != 0 ? of.weights : of.inputs) += event.seconds;
    }
  }

  const Graph& graph_;
  const StrategyCost& cost_;
  const std::vector<char>& weight_ops_;
  std::vector<Pass> passes_;
  PhaseBegins begins_;
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

// Per backward op the forward op that it belongs to: by its name, or as what makes its inputs does,
// such as the sum of a weight's gradients over the passes; the last one where nothing of the
// backward pass makes them. Not valid: of forward ops, and where these belong to several, which may
// be in different chunks.
std::vector<OpId> owners_of_backward(const Graph& step) {
  std::map<std::string, OpId> forward;
  OpId last;
  std::vector<OpId> owners(step.ops.size());
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const Op& op = step.ops[o];
    if (op.phase == Phase::kForward) forward[op.name] = last = OpId(static_cast<std::int64_t>(o));
    if (op.phase != Phase::kBackward) continue;
    const auto known = forward.find(op.name.substr(0, op.name.rfind(".grad")));
    if (known != forward.end()) {
      owners[o] = known->second;
      continue;
    }
    std::set<OpId> of_inputs;
    for (ValueId input : op.inputs) {
      const OpId maker = input.valid() ? step.value(input).producer : OpId();
      if (maker.valid() && step.op(maker).phase == Phase::kBackward) {
        of_inputs.insert(owners[maker.index()]);
      }
    }
    if (of_inputs.empty()) owners[o] = last;
    if (of_inputs.size() == 1) owners[o] = *of_inputs.begin();
  }
  return owners;
}

// Per value the first forward op that reads it.
std::vector<OpId> first_readers(const Graph& step) {
  std::vector<OpId> readers(step.values.size());
  for (std::size_t o = step.ops.size(); o-- > 0;) {
    if (step.ops[o].phase != Phase::kForward) continue;
    for (const ValueId input : step.ops[o].inputs) {
      if (input.valid()) readers[input.index()] = OpId(static_cast<std::int64_t>(o));
    }
  }
  return readers;
}

// The first reader of the parameter that it updates: of the largest of its inputs that tells one,
// by itself or by what made it. `owners`: of the ops before.
OpId owner_of_update(const Graph& step, const Op& op, const std::vector<OpId>& readers,
                     const std::vector<OpId>& owners) {
  OpId owner;
  Bytes most = -1;
  for (const ValueId input : op.inputs) {
    if (!input.valid()) continue;
    const OpId maker = step.value(input).producer;
    const OpId found = maker.valid() ? owners[maker.index()] : readers[input.index()];
    if (!found.valid() || step.value(input).bytes() <= most) continue;
    owner = found;
    most = step.value(input).bytes();
  }
  return owner;
}

}  // namespace

Result<OpSeconds> seconds_of_ops(const Inputs& inputs, const Graph& step,
                                 const std::string& updates) {
  AUTOPAR_TRY(whole, WholeOps::on(inputs.cluster));
  const std::vector<Seconds> none(step.ops.size());
  OpSeconds seconds{none, none, none, none, none};
  const std::vector<char> of_weights = weight_gradient_ops(step, updates);
  std::vector<OpId> owners = owners_of_backward(step);
  const std::vector<OpId> readers = first_readers(step);
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const Op& op = step.ops[o];
    AUTOPAR_TRY(price, whole.seconds(step, op, inputs.rules.rules[o]));
    if (op.phase == Phase::kUpdate) {
      seconds.updating[o] = price;
      owners[o] = owner_of_update(step, op, readers, owners);
      if (owners[o].valid()) seconds.update[owners[o].index()] += price;
      continue;
    }
    if (op.phase == Phase::kForward) seconds.forward[o] = price;
    if (op.phase == Phase::kForward || !owners[o].valid()) continue;
    const std::size_t owner = owners[o].index();
    seconds.backward[owner] += price;
    if (of_weights[o] == 0) seconds.inputs[owner] += price;
  }
  return seconds;
}

OpBytes bytes_of_ops(const Graph& step, const std::string& updates) {
  OpBytes bytes{std::vector<double>(step.ops.size()), std::vector<double>(step.ops.size())};
  const std::vector<ValueId> updated = updated_inputs(step, updates);
  const std::vector<OpId> readers = first_readers(step);
  std::vector<OpId> owners = owners_of_backward(step);
  std::vector<char> counts(step.values.size(), 0);
  const auto store = [&](ValueId id, OpId owner) {
    if (!owner.valid() || counts[id.index()] != 0) return;
    counts[id.index()] = 1;
    bytes.stored[owner.index()] += static_cast<double>(step.value(id).bytes());
  };
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const Op& op = step.ops[o];
    if (op.phase == Phase::kUpdate) owners[o] = owner_of_update(step, op, readers, owners);
    for (const ValueId input : op.inputs) {
      if (!input.valid()) continue;
      const Value& value = step.value(input);
      const bool is_stored = value.kind == ValueKind::kParameter || updated[input.index()].valid();
      if (!value.producer.valid() && is_stored) {
        store(input, readers[input.index()].valid() ? readers[input.index()] : owners[o]);
      }
      const bool is_kept = value.producer.valid() && op.phase == Phase::kBackward &&
                           step.op(value.producer).phase == Phase::kForward;
      if (!is_kept || counts[input.index()] != 0) continue;
      counts[input.index()] = 1;
      bytes.kept[value.producer.index()] += static_cast<double>(value.bytes());
    }
  }
  return bytes;
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

std::vector<char> weight_part(const Graph& graph, const Strategy& strategy,
                              const std::string& updates) {
  std::vector<char> weights = weight_gradient_ops(graph, updates);
  const auto is_partial = [&](ValueId id) {
    const ValueSpecs& specs = strategy.values[id.index()];
    return !specs.spec.partial.empty() || !specs.hub.partial.empty();
  };
  // What makes a value in the backward phase; an invalid id where nothing there does.
  const auto maker_of = [&](ValueId id) {
    const OpId maker = id.valid() ? graph.value(id).producer : OpId();
    return maker.valid() && graph.op(maker).phase == Phase::kBackward ? maker : OpId();
  };
  const auto reads_partial_of_inputs = [&](const Op& op) {
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
      const OpId maker = maker_of(id);
      return maker.valid() && weights[maker.index()] == 0 && is_partial(id);
    });
  };
  // An op that goes to the inputs takes along what it reads, of which others may read partial sums.
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (weights[o] == 0 || !reads_partial_of_inputs(graph.ops[o])) continue;
      weights[o] = 0;
      has_changed = true;
    }
    for (std::size_t o = graph.ops.size(); has_changed && o-- > 0;) {
      if (weights[o] != 0 || graph.ops[o].phase != Phase::kBackward) continue;
      for (ValueId id : graph.ops[o].inputs) {
        if (const OpId maker = maker_of(id); maker.valid()) weights[maker.index()] = 0;
      }
    }
  }
  bool has_weights = false, has_inputs = false;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::kBackward) continue;
    (weights[o] != 0 ? has_weights : has_inputs) = true;
  }
  if (!has_weights || !has_inputs) weights.clear();
  return weights;
}

ChunkCost chunk_cost(const SearchRequest& request, const Mesh& mesh, const StrategyCost& plan,
                     const std::vector<char>& weight_ops, ForwardLinks* links) {
  const PhaseSeconds phases(request, mesh, plan, weight_ops);
  const std::int64_t passes = request.graph.passes;
  const std::int64_t steady = passes > 1 ? 1 : 0;
  ChunkCost cost;
  cost.steady = phases.of_pass(steady);
  if (links != nullptr) *links = phases.links(steady);
  cost.first = phases.of_pass(0);
  cost.last = phases.of_pass(passes - 1);
  cost.update = phases.update();
  return cost;
}

LateSeconds late_seconds(const SearchRequest& request, const Mesh& mesh, const StrategyCost& plan) {
  const Graph& graph = request.graph;
  LateSeconds late;
  if (!plan.step) return late;
  const Streams streams(graph, request.updates, mesh, request.cluster.profile);
  Seconds end_of_passes = 0, end_of_gradients = 0;
  for (const StepEvent& event : step_events(graph, plan, mesh, request.cluster, request.updates)) {
    const CostTerm& term = plan.terms[event.term];
    const OpId when = when_of(term, graph);
    const Seconds end = event.begin + event.seconds;
    if (event.stream == StepEvent::Stream::kCompute) {
      if (graph.op(when).phase != Phase::kUpdate) end_of_passes = std::max(end_of_passes, end);
      continue;
    }
    if (event.stream != StepEvent::Stream::kLink) continue;
    const Streams::Kind kind = streams.kind(term.value, when, term.collective.kind);
    const auto link = static_cast<std::size_t>(event.link);
    if (kind == Streams::Kind::kNext) late.weights[link] += event.alone;
    if (kind == Streams::Kind::kAwaited) late.gradients[link] += event.alone;
    const bool is_of_gradient = kind == Streams::Kind::kAwaited || kind == Streams::Kind::kSummed;
    if (is_of_gradient) end_of_gradients = std::max(end_of_gradients, end);
  }
  late.tail = std::max(0.0, end_of_gradients - end_of_passes);
  late.rest = std::max(0.0, plan.time() - end_of_passes - late.tail);
  return late;
}

ChunkCost chunk_cost(const Planned& planned, const std::vector<char>& weight_ops,
                     ForwardLinks* links) {
  return chunk_cost(*planned.request, planned.outcome.strategy.mesh, planned.outcome.cost,
                    weight_ops, links);
}

}  // namespace autopar
