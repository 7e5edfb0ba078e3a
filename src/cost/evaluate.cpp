#include <algorithm>
#include <map>
#include <set>

#include "autopar/cost.hpp"
#include "autopar/memory.hpp"
#include "cost/memory_course.hpp"

namespace autopar {

namespace {

// Bytes that come to life at some time and go at another, summed by differences.
class Timeline {
 public:
  explicit Timeline(int horizon) : change_(static_cast<std::size_t>(horizon) + 1, 0) {}
  void add(int begin, int end, Bytes bytes) {
    if (begin >= end) return;
    change_[static_cast<std::size_t>(begin)] += bytes;
    change_[static_cast<std::size_t>(end)] -= bytes;
  }
  std::vector<Bytes> totals() const {
    std::vector<Bytes> totals;
    Bytes now = 0;
    for (std::size_t t = 0; t + 1 < change_.size(); ++t) totals.push_back(now += change_[t]);
    return totals;
  }

 private:
  std::vector<Bytes> change_;
};

struct Evaluator {
  const Graph& graph;
  const GraphRules& rules;
  const Strategy& strategy;
  CostModel& model;
  std::vector<OpSpecs> specs;
  std::vector<Readers> readers;
  StrategyCost cost;
  int horizon;
  Timeline stored, copies, temporaries;
  std::vector<MemoryCharge> charges = {};

  Bytes bytes_of(const Value& value, const Spec& spec) const {
    return local_bytes(spec, value.shape, value.dtype, model.mesh());
  }

  // Reshards of one shape and type that were priced before: layers repeat them.
  struct PricedReshard {
    Spec from, to;
    std::vector<PricedCollective> steps;
    Bytes source = 0, peak = 0;
    Seconds breaking = 0;  // of a kernel that the value is inside
  };
  std::map<std::pair<Shape, DType>, std::deque<PricedReshard>> priced = {};
  PerClass<OpPrice> op_prices = {};

  const PricedReshard& priced_reshard(const Value& value, const Spec& from, const Spec& to) {
    auto& known = priced[{value.shape, value.dtype}];
    for (const PricedReshard& r : known) {
      if (r.from == from && r.to == to) return r;
    }
    const auto prices = model.reshard_prices(value.shape, value.dtype, {from}, {to});
    known.push_back({from, to, model.reshard_steps(value.shape, value.dtype, from, to),
                     bytes_of(value, from), std::max(prices[0][0].peak_bytes, bytes_of(value, to)),
                     model.breaking_seconds(value.shape, value.dtype, from, to)});
    return known.back();
  }

  void add(CostTerm term, OpId when) {
    term.times = graph.times(graph.op(when));
    term.seconds *= static_cast<double>(term.times);
    term.sent_bytes *= static_cast<double>(term.times);
    cost.terms.push_back(std::move(term));
  }

  // While an op runs; of interleaved passes for each.
  void add_temporary(int time, Bytes bytes) {
    const bool in_pass = graph.ops[static_cast<std::size_t>(time)].phase != Phase::kUpdate;
    temporaries.add(time, time + 1, in_pass ? graph.copies * bytes : bytes);
  }

  // Adds the steps of a reshard to the terms and returns its peak of temporaries.
  Bytes reshard(ValueId id, const Spec& from, const Spec& to, OpId reader, bool to_hub) {
    if (from == to) return 0;
    const PricedReshard& reshard = priced_reshard(graph.value(id), from, to);
    // An output is made where its value is.
    const OpId when = reader.valid() ? reader : graph.value(id).producer;
    const int runs = graph.kernel(graph.op(when)).runs;
    if (graph.is_inside(id)) {
      add({CostTerm::Kind::kCompute, reader, id, to_hub, {}, runs * reshard.breaking, 0}, when);
    }
    for (const PricedCollective& step : reshard.steps) {
      add({CostTerm::Kind::kCollective, reader, id, to_hub, step.collective, runs * step.seconds,
           runs * step.sent_bytes, 1, reshard.source, reshard.peak},
          when);
    }
    return reshard.peak;
  }

  // What reading input `port` costs; hubs are made by the first reader.
  void read(OpId op, std::size_t port, int time) {
    const ValueId id = graph.op(op).inputs[port];
    const Value& value = graph.value(id);
    if (value.kind == ValueKind::kConstant) return;  // sliced once, at load time
    const Readers& r = readers[id.index()];
    const ValueSpecs& v = strategy.values[id.index()];
    const Spec& need = specs[op.index()].inputs[port];
    // Of the ports of one op that read the value, the first makes the hub, and the first that needs
    // a spec makes that.
    bool read_before = false, needed_before = false;
    for (std::size_t p = 0; p < port; ++p) {
      if (graph.op(op).inputs[p] != id) continue;
      read_before = true;
      needed_before |= specs[op.index()].inputs[p] == need;
    }
    if (r.count() > 1 && r.first == time && !r.is_output && !read_before) make_hub(id, op);
    const Spec& from = r.count() > 1 ? v.hub : v.spec;
    if (from == need || needed_before) return;
    add_temporary(time, reshard(id, from, need, op, false));
  }

  void make_hub(ValueId id, OpId reader) {
    const Readers& r = readers[id.index()];
    const ValueSpecs& v = strategy.values[id.index()];
    if (v.spec == v.hub) return;
    add_temporary(r.first, reshard(id, v.spec, v.hub, reader, true));
  }

  // What the read or written copy is made from.
  const Spec& source_of(ValueId id) const {
    const ValueSpecs& v = strategy.values[id.index()];
    return readers[id.index()].count() > 1 ? v.hub : v.spec;
  }

  Bytes charged(const MemoryCharge& charge) const { return charge.copies * charged_once(charge); }

  Bytes charged_once(const MemoryCharge& charge) const {
    using Kind = MemoryCharge::Kind;
    if (graph.is_inside(charge.value)) return 0;
    const Value& value = graph.value(charge.value);
    const ValueSpecs& v = strategy.values[charge.value.index()];
    const auto unless = [&](const Spec& to, const Spec& from) {
      return to == from ? 0 : bytes_of(value, to);
    };
    switch (charge.kind) {
      case Kind::kSpec:
        return bytes_of(value, v.spec);
      case Kind::kHub:
        return bytes_of(value, v.hub);
      case Kind::kOutput:
        return bytes_of(value, v.output);
      case Kind::kToHub:
        return unless(v.hub, v.spec);
      case Kind::kToOutput:
        return unless(v.output, source_of(charge.value));
      case Kind::kToReader:
        return unless(specs[charge.reader.index()].inputs[0], source_of(charge.value));
    }
    return 0;
  }

  // The next value of an input takes its place where it lies as the input does.
  void account(const std::string& updates) {
    std::vector<ValueId> updated = updated_inputs(graph, updates);
    for (std::size_t v = 0; v < updated.size(); ++v) {
      if (!updated[v].valid()) continue;
      const Spec& place = strategy.values[updated[v].index()].spec;
      if (!(strategy.values[v].output == place)) updated[v] = {};
    }
    for (const MemoryCharge& charge : memory_charges(graph, readers, updated)) {
      const bool is_stored = charge.kind == MemoryCharge::Kind::kSpec &&
                             graph.value(charge.value).kind != ValueKind::kActivation;
      (is_stored ? stored : copies).add(charge.begin, charge.end, charged(charge));
      charges.push_back(charge);
    }
    for (const GradientBuffer& buffer : gradient_buffers(graph)) {
      const Spec& spec = strategy.values[buffer.value.index()].spec;
      if (!has_replicas(spec, strategy.mesh)) continue;
      charges.push_back({MemoryCharge::Kind::kSpec, buffer.value, {}, 0, horizon, buffer.copies});
      stored.add(0, horizon, charged(charges.back()));
    }
  }

  Status run_op(OpId id) {
    const Op& op = graph.op(id);
    const int time = static_cast<int>(id.value);
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      if (op.has_input(port)) read(id, port, time);
    }
    const Assignment& assignment = strategy.assignments[id.index()];
    const OpPrice* price = op_prices.find(rules.class_of_op[id.index()], assignment);
    if (price == nullptr) {
      AUTOPAR_TRY(
          found, model.op_price(graph, op, rules.rules[id.index()], assignment, specs[id.index()]));
      price = &op_prices.add(rules.class_of_op[id.index()], assignment, std::move(found));
    }
    add({CostTerm::Kind::kCompute, id, {}, false, {}, price->compute, 0}, id);
    for (const PricedCollective& c : price->collectives) {
      add({CostTerm::Kind::kCollective, id, {}, false, c.collective, c.seconds, c.sent_bytes}, id);
    }
    add_temporary(time, price->temporaries);
    for (ValueId output : op.outputs) {
      if (!output.valid() || !readers[output.index()].is_output) continue;
      const ValueSpecs& v = strategy.values[output.index()];
      const bool hub = readers[output.index()].count() > 1;
      if (hub) make_hub(output, {});
      add_temporary(time, reshard(output, hub ? v.hub : v.spec, v.output, {}, false));
    }
    return Ok{};
  }

  Bytes constants() const {
    Bytes constants = 0;
    for (const Value& value : graph.values) {
      if (value.kind == ValueKind::kConstant) constants += value.bytes();
    }
    return constants;
  }

  // Per op. Where a copy of a value ends another one may take its place.
  std::vector<Bytes> held_before() const {
    const auto is_copy = [](const MemoryCharge& charge) {
      return charge.kind == MemoryCharge::Kind::kSpec || charge.kind == MemoryCharge::Kind::kHub;
    };
    std::set<std::pair<ValueId, int>> ends;
    for (const MemoryCharge& charge : charges) {
      if (is_copy(charge)) ends.emplace(charge.value, charge.end);
    }
    Timeline timeline(horizon);
    for (const MemoryCharge& charge : charges) {
      const bool goes_on = is_copy(charge) && ends.count({charge.value, charge.begin}) != 0;
      const bool was_there = charge.begin == 0 || goes_on;
      timeline.add(was_there ? charge.begin : charge.begin + 1, charge.end, charged(charge));
    }
    std::vector<Bytes> before = timeline.totals();
    const Bytes always = constants();
    for (Bytes& bytes : before) bytes += always;
    return before;
  }

  void find_peak() {
    const Bytes constants = this->constants();
    const auto s = stored.totals(), c = copies.totals(), t = temporaries.totals();
    for (int i = 0; i < horizon; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const Bytes total = constants + s[at] + c[at] + t[at];
      cost.held.push_back(total);
      if (i > 0 && total <= cost.memory.total) continue;
      cost.memory = {total, i, s[at], constants, c[at], t[at]};
    }
    std::map<ValueId, Bytes> held;
    for (const MemoryCharge& charge : charges) {
      if (charge.begin > cost.memory.time || cost.memory.time >= charge.end) continue;
      if (const Bytes bytes = charged(charge); bytes > 0) held[charge.value] += bytes;
    }
    cost.memory.values.assign(held.begin(), held.end());
  }
};

}  // namespace

Seconds StrategyCost::total() const {
  Seconds sum = 0;
  for (const CostTerm& term : terms) sum += term.seconds;
  return sum;
}

Seconds StrategyCost::compute() const {
  Seconds sum = 0;
  for (const CostTerm& term : terms) {
    if (term.kind == CostTerm::Kind::kCompute) sum += term.seconds;
  }
  return sum;
}

Seconds StrategyCost::communication() const { return total() - compute(); }

namespace {

Result<Evaluator> evaluator_of(const Graph& graph, const GraphRules& rules,
                               const Strategy& strategy, CostModel& model,
                               const std::string& updates) {
  AUTOPAR_TRY(specs, op_specs_of(graph, rules, strategy));
  std::vector<Readers> readers = readers_of(graph);
  AUTOPAR_RETURN_IF_ERROR(verify(graph, specs, readers, strategy));
  const int horizon = static_cast<int>(graph.ops.size());
  Evaluator evaluator{graph,
                      rules,
                      strategy,
                      model,
                      std::move(specs),
                      std::move(readers),
                      {},
                      horizon,
                      Timeline(horizon),
                      Timeline(horizon),
                      Timeline(horizon)};
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    AUTOPAR_RETURN_IF_ERROR(evaluator.run_op(OpId(static_cast<std::int64_t>(i))));
  }
  evaluator.account(updates);
  evaluator.find_peak();
  return evaluator;
}

}  // namespace

Result<StrategyCost> evaluate(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                              CostModel& model, const std::string& updates, Bytes limit) {
  AUTOPAR_TRY(evaluator, evaluator_of(graph, rules, strategy, model, updates));
  const Profile& profile = model.cluster().profile;
  evaluator.cost.limit = limit;
  if (!profile.ideal()) {
    evaluator.cost.step = simulate(graph, evaluator.cost, model.mesh(), model.cluster(), updates);
  }
  return std::move(evaluator.cost);
}

Result<MemoryCourse> memory_course(const Graph& graph, const GraphRules& rules,
                                   const Strategy& strategy, CostModel& model,
                                   const std::string& updates) {
  AUTOPAR_TRY(evaluator, evaluator_of(graph, rules, strategy, model, updates));
  return MemoryCourse{std::move(evaluator.cost.held), evaluator.held_before()};
}

}  // namespace autopar
