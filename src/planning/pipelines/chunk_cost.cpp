#include "planning/pipelines/chunk_cost.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "autopar/step_events.hpp"

namespace autopar {

PhaseEnds phase_ends(const Graph& graph, const StrategyCost& cost,
                     const std::vector<StepEvent>& events) {
  PhaseEnds found(graph.passes);
  for (const StepEvent& event : events) found.add(event, graph, cost);
  found.close();
  return found;
}

void PhaseEnds::close() {
  Seconds end = 0;
  for (OfPass& of : of_pass_) {
    of.forward = std::max(of.forward, end);
    of.backward = end = std::max(of.backward, of.forward);
  }
}

void PhaseEnds::add(const StepEvent& event, const Graph& graph, const StrategyCost& cost) {
  const CostTerm& term = cost.terms[event.term];
  const bool is_compute = event.stream == StepEvent::Stream::kCompute;
  // Of an output, or what an op sends itself.
  const bool is_awaited =
      event.stream == StepEvent::Stream::kLink && (!term.op.valid() || !term.value.valid());
  if ((!is_compute && !is_awaited) || event.pass == graph.passes) return;
  const OpId op = when_of(term, graph);
  const Phase phase = op.valid() ? graph.op(op).phase : Phase::kForward;
  if (phase == Phase::kUpdate) return;
  OfPass& of = of_pass_[static_cast<std::size_t>(event.pass)];
  Seconds& end = phase == Phase::kForward ? of.forward : of.backward;
  end = std::max(end, event.begin + event.seconds);
  if (is_compute) first_ = std::min(first_, event.begin);
}

namespace {

class PhaseSeconds {
 public:
  PhaseSeconds(const SearchRequest& request, const Mesh& mesh, const StrategyCost& cost)
      : graph_(request.graph),
        cost_(cost),
        passes_(static_cast<std::size_t>(request.graph.passes)),
        ends_(request.graph.passes) {
    visit_step_events(graph_, cost_, mesh, request.cluster, request.updates,
                      [&](const StepEvent& event) { add(event); });
    ends_.close();
    update_ = std::max(0.0, cost_.time() - ends_.end());
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
    ForwardLinks found{
        passes_[static_cast<std::size_t>(steady)].links, {}, ends_.first_begin(), room_to_fetch()};
    for (std::size_t l = 0; l < kLinks; ++l) {
      found.fetching[l] = std::max(0.0, passes_[0].links[l] - found.of_pass[l]);
    }
    return found;
  }

  PassSeconds of_pass(std::int64_t pass) const {
    const auto at = static_cast<std::size_t>(pass);
    PassSeconds found;
    found.forward = ends_.forward_end(at) - ends_.forward_begin(at);
    found.backward = ends_.backward_end(at) - ends_.forward_end(at);
    return found;
  }

 private:
  struct Pass {
    std::array<Seconds, kLinks> links = {};  // of the forward pass
  };

  void add(const StepEvent& event) {
    if (event.stream == StepEvent::Stream::kHost) return;
    ends_.add(event, graph_, cost_);
    const OpId op = when_of(cost_.terms[event.term], graph_);
    const Phase phase = op.valid() ? graph_.op(op).phase : Phase::kForward;
    if (event.stream == StepEvent::Stream::kLink) {
      // In a pass the links of updates are busy with the weights of the step before.
      if (event.pass == graph_.passes || phase == Phase::kBackward) return;
      Pass& of = passes_[static_cast<std::size_t>(event.pass)];
      of.links[static_cast<std::size_t>(event.link)] += event.alone;
    }
  }

  const Graph& graph_;
  const StrategyCost& cost_;
  std::vector<Pass> passes_;
  PhaseEnds ends_;
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

// OpBytes::alive.
std::vector<double> alive_bytes(const Graph& step) {
  std::vector<std::size_t> last_read(step.values.size(), 0);
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    if (step.ops[o].phase != Phase::kForward) continue;
    for (const ValueId input : step.ops[o].inputs) {
      if (input.valid()) last_read[input.index()] = o;
    }
  }
  std::vector<double> comes(step.ops.size() + 1), alive(step.ops.size());
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    if (step.ops[o].phase != Phase::kForward) continue;
    for (const ValueId output : step.ops[o].outputs) {
      if (!output.valid()) continue;
      const auto size = static_cast<double>(step.value(output).bytes());
      comes[o] += size;
      comes[std::max(o, last_read[output.index()]) + 1] -= size;
    }
  }
  double now = 0;
  for (std::size_t o = 0; o < alive.size(); ++o) alive[o] = now += comes[o];
  return alive;
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
  const std::vector<double> none(step.ops.size());
  OpBytes bytes{none, none, alive_bytes(step)};
  const std::vector<ValueId> updated = updated_inputs(step, updates);
  const std::vector<OpId> readers = first_readers(step);
  std::vector<OpId> owners = owners_of_backward(step);
  std::vector<char> counts(step.values.size(), 0);
  const auto store = [&](ValueId id, OpId owner) {
    if (!owner.valid() || counts[id.index()] != 0) return;
    counts[id.index()] = 1;
    bytes.stored[owner.index()] += static_cast<double>(step.value(id).bytes());
  };
  for (const Value& value : step.values) {
    const OpId owner = value.producer.valid()
                           ? value.producer
                           : readers[static_cast<std::size_t>(&value - step.values.data())];
    if (!value.of_batch || !owner.valid()) continue;
    bytes.stored[owner.index()] += static_cast<double>(value.bytes() * (step.passes - 1));
  }
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

std::vector<char> reduce_part(const Graph& graph, const std::vector<std::string>& reduce_ops) {
  std::vector<char> reduces(graph.ops.size()), is_read(graph.values.size());
  if (reduce_ops.empty()) return reduces;
  const std::set<std::string> named(reduce_ops.begin(), reduce_ops.end());
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::kUpdate) continue;
    const bool is_wanted = std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) {
      return id.valid() && is_read[id.index()] != 0;
    });
    if (!is_wanted && named.count(op.name) == 0) continue;
    reduces[o] = 1;
    for (ValueId id : op.inputs) {
      if (id.valid()) is_read[id.index()] = 1;
    }
  }
  return reduces;
}

OpId op_of_part(const CostTerm& term, const Graph& graph) {
  const OpId maker = term.value.valid() ? graph.value(term.value).producer : OpId();
  const bool is_made_there =
      term.to_hub && maker.valid() && graph.op(maker).phase == Phase::kBackward;
  return is_made_there ? maker : when_of(term, graph);
}

namespace {

// Of the backward pass only what is in one of its parts, which are programs of their own.
StrategyCost with_part(const StrategyCost& plan, const Graph& graph,
                       const std::vector<char>& weight_ops, bool of_weights) {
  StrategyCost part = plan;
  std::erase_if(part.terms, [&](const CostTerm& term) {
    const OpId op = op_of_part(term, graph);
    const bool is_backward = op.valid() && graph.op(op).phase == Phase::kBackward;
    return is_backward && (weight_ops[op.index()] != 0) != of_weights;
  });
  return part;
}

// How long the parts of a backward pass take to make hubs of what the chunk is handed once more:
// they are handed it as the forward pass is.
struct AgainSeconds {
  Seconds of_inputs = 0, of_weights = 0;
};
AgainSeconds again_seconds(const StrategyCost& plan, const Graph& graph,
                           const std::vector<char>& weight_ops) {
  AgainSeconds again;
  const std::vector<std::vector<Use>> uses = uses_of(graph);
  for (const CostTerm& term : plan.terms) {
    const bool is_handed = term.to_hub && !graph.value(term.value).producer.valid() &&
                           graph.value(term.value).kind == ValueKind::kInput;
    if (!is_handed || !term.op.valid() || graph.op(term.op).phase != Phase::kForward) continue;
    bool of_inputs = false, of_weights = false;
    for (const Use& use : uses[term.value.index()]) {
      if (!use.op.valid() || graph.op(use.op).phase != Phase::kBackward) continue;
      (!weight_ops.empty() && weight_ops[use.op.index()] != 0 ? of_weights : of_inputs) = true;
    }
    const Seconds once = term.seconds / static_cast<double>(std::max<std::int64_t>(1, term.times));
    if (of_inputs) again.of_inputs += once;
    if (of_weights) again.of_weights += once;
  }
  return again;
}

}  // namespace

ChunkCost chunk_cost(const SearchRequest& request, const Mesh& mesh, const StrategyCost& plan,
                     const std::vector<char>& weight_ops, ForwardLinks* links) {
  const PhaseSeconds phases(request, mesh, plan);
  const std::int64_t passes = request.graph.passes;
  const std::int64_t steady = passes > 1 ? 1 : 0;
  ChunkCost cost;
  cost.steady = phases.of_pass(steady);
  if (links != nullptr) *links = phases.links(steady);
  cost.first = phases.of_pass(0);
  cost.last = phases.of_pass(passes - 1);
  cost.update = phases.update();
  const AgainSeconds again = again_seconds(plan, request.graph, weight_ops);
  if (weight_ops.empty()) {
    for (PassSeconds* pass : {&cost.steady, &*cost.first, &*cost.last}) {
      pass->backward += again.of_inputs;
    }
    return cost;
  }
  for (const bool of_weights : {false, true}) {
    const StrategyCost part = with_part(plan, request.graph, weight_ops, of_weights);
    const PhaseSeconds alone(request, mesh, part);
    const auto take = [&](PassSeconds& whole, std::int64_t pass) {
      (of_weights ? whole.weight_gradients : whole.input_gradients) = alone.of_pass(pass).backward;
    };
    take(cost.steady, steady);
    take(*cost.first, 0);
    take(*cost.last, passes - 1);
  }
  // A whole backward pass is both programs, one after the other.
  for (PassSeconds* pass : {&cost.steady, &*cost.first, &*cost.last}) {
    pass->input_gradients += again.of_inputs;
    pass->weight_gradients += again.of_weights;
    pass->backward = pass->input_gradients + pass->weight_gradients;
  }
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
