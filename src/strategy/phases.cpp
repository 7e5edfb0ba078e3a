#include "autopar/phases.hpp"

#include <algorithm>

namespace autopar {
namespace {

class Cutter {
 public:
  Cutter(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
         const std::vector<OpSpecs>& specs, const std::vector<Readers>& readers,
         const std::vector<int>& part_of_op, int part)
      : graph_(graph),
        rules_(rules),
        strategy_(strategy),
        specs_(specs),
        readers_(readers),
        part_of_op_(part_of_op),
        mine_(part) {}

  StepPart run() {
    part_.graph.name = graph_.name;
    part_.graph.opset = graph_.opset;
    part_.strategy.mesh = strategy_.mesh;
    find_values();
    add_values();
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (is_mine(o)) add_op(o);
    }
    for (ValueId input : graph_.inputs) {
      if (moved_[input.index()].valid()) part_.graph.inputs.push_back(moved_[input.index()]);
    }
    for (ValueId output : graph_.outputs) {
      if (is_made(output)) part_.graph.outputs.push_back(moved_[output.index()]);
    }
    hand_over();
    settle_hubs();
    return std::move(part_);
  }

 private:
  // What readers share, or, of one reader, as the value is made.
  const Spec& left_as(ValueId id) const {
    const ValueSpecs& specs = strategy_.values[id.index()];
    return readers_[id.index()].count() > 1 ? specs.hub : specs.spec;
  }
  // In what a value waits for parts that do not make it: no partial sum where that can be.
  const Spec& waiting(ValueId id) const {
    const Spec& spec = left_as(id);
    return spec.partial.empty() ? spec : strategy_.values[id.index()].hub;
  }

  // Each part that reads it makes it again.
  bool is_read_by_each(std::size_t op) const {
    return is_of_accumulator(op) || is_stored_otherwise(op);
  }
  // Such as a weight as it is read transposed: handed on, it would be there for each micro-batch.
  bool is_stored_otherwise(std::size_t op) const {
    const Op& view = graph_.ops[op];
    if (view.type != "Transpose" || !view.domain.empty() || view.phase == Phase::kUpdate)
      return false;
    const Value& read = graph_.value(view.inputs[0]);
    const ValueSpecs& specs = strategy_.values[view.outputs[0].index()];
    return read.kind == ValueKind::kParameter && specs.spec == left_as(view.outputs[0]) &&
           specs.spec.partial.empty();
  }
  // What parts of the update read together of an accumulator that is still a partial sum: no
  // program may hand that on, so each part reads the accumulator itself.
  bool is_of_accumulator(std::size_t op) const {
    if (!is_identity(graph_.ops[op])) return false;
    const Value& read = graph_.value(graph_.ops[op].inputs[0]);
    return read.accumulates && !read.producer.valid() &&
           !left_as(graph_.ops[op].outputs[0]).partial.empty();
  }
  bool is_mine(std::size_t op) const {
    const bool is_own = part_of_op_[op] == mine_;
    if (!is_read_by_each(op)) return is_own;
    const Readers& readers = readers_[graph_.ops[op].outputs[0].index()];
    const bool is_read = std::any_of(readers.uses.begin(), readers.uses.end(), [&](const Use& use) {
      return part_of_op_[use.op.index()] == mine_;
    });
    const bool is_kept = is_of_accumulator(op) || readers.is_output || readers.uses.empty();
    return is_read || (is_own && is_kept);
  }
  bool is_made(ValueId id) const {
    const OpId producer = graph_.value(id).producer;
    return producer.valid() && is_mine(producer.index());
  }

  // Values that one part makes and another reads.
  void hand_over() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      if (!moved_[v].valid() || !graph_.value(id).producer.valid()) continue;
      if (is_read_by_each(graph_.value(id).producer.index())) continue;
      ValueSpecs& specs = part_.strategy.values[moved_[v].index()];
      const auto& uses = readers_[v].uses;
      const bool is_read_elsewhere = std::any_of(
          uses.begin(), uses.end(), [&](const Use& use) { return !is_mine(use.op.index()); });
      if (!is_made(id)) {
        part_.graph.inputs.push_back(moved_[v]);
        specs.spec = waiting(id);
      } else if (is_read_elsewhere && !readers_[v].is_output) {
        part_.graph.outputs.push_back(moved_[v]);
        specs.output = waiting(id);
      }
    }
  }

  // Those that its ops read and make; of inputs also those that no op reads, in the pass.
  void find_values() {
    wanted_.assign(graph_.values.size(), false);
    std::vector<bool> read(graph_.values.size());
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const auto* ids : {&graph_.ops[o].inputs, &graph_.ops[o].outputs}) {
        for (ValueId id : *ids) {
          if (!id.valid()) continue;
          read[id.index()] = true;
          if (is_mine(o)) wanted_[id.index()] = true;
        }
      }
    }
    for (std::size_t v = 0; v < wanted_.size(); ++v) {
      if (!read[v] && mine_ == 0 && !graph_.values[v].producer.valid()) wanted_[v] = true;
    }
  }

  void add_values() {
    moved_.assign(graph_.values.size(), ValueId());
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!wanted_[v]) continue;
      Value value = graph_.values[v];
      if (value.producer.valid() && !is_made(ValueId(static_cast<std::int64_t>(v)))) {
        value.kind = ValueKind::kInput;
      }
      value.producer = {};
      moved_[v] = part_.graph.add_value(std::move(value));
      part_.strategy.values.push_back(strategy_.values[v]);
    }
  }

  void add_op(std::size_t o) {
    Op op = graph_.ops[o];
    for (auto* ids : {&op.inputs, &op.outputs}) {
      for (ValueId& id : *ids) {
        if (id.valid()) id = moved_[id.index()];
      }
    }
    part_.graph.add_op(std::move(op));
    part_.strategy.assignments.push_back(strategy_.assignments[o]);
    part_.rules.rules.push_back(rules_.rules[o]);
    part_.rules.class_of_op.push_back(rules_.class_of_op[o]);
    op_specs_.push_back(&specs_[o]);
  }

  // What is not the hub of several readers any more, is what the one reader needs.
  void settle_hubs() {
    const std::vector<Readers> readers = readers_of(part_.graph);
    for (std::size_t v = 0; v < readers.size(); ++v) {
      if (part_.graph.values[v].kind == ValueKind::kConstant) continue;
      ValueSpecs& specs = part_.strategy.values[v];
      if (readers[v].count() == 1 && readers[v].is_output) {
        specs.hub = specs.output;
      } else if (readers[v].count() == 1) {
        const Use& use = readers[v].uses[0];
        specs.hub = op_specs_[use.op.index()]->inputs[static_cast<std::size_t>(use.port)];
      } else if (readers[v].count() == 0) {
        specs.hub = specs.spec;
      }
      if (!readers[v].is_output) specs.output = specs.hub;
    }
  }

  const Graph& graph_;
  const GraphRules& rules_;
  const Strategy& strategy_;
  const std::vector<OpSpecs>& specs_;
  const std::vector<Readers>& readers_;
  const std::vector<int>& part_of_op_;
  const int mine_;
  StepPart part_;
  std::vector<bool> wanted_;
  std::vector<ValueId> moved_;
  std::vector<const OpSpecs*> op_specs_;
};

}  // namespace

Result<std::vector<StepPart>> cut_parts(const Graph& graph, const GraphRules& rules,
                                        const Strategy& strategy,
                                        const std::vector<int>& part_of_op, int parts) {
  AUTOPAR_TRY(specs, op_specs_of(graph, rules, strategy));
  const std::vector<Readers> readers = readers_of(graph);
  std::vector<StepPart> found;
  for (int part = 0; part < parts; ++part) {
    found.push_back(Cutter(graph, rules, strategy, specs, readers, part_of_op, part).run());
    const StepPart& cut = found.back();
    AUTOPAR_RETURN_IF_ERROR(verify(cut.graph));
    AUTOPAR_RETURN_IF_ERROR(verify(cut.graph, cut.rules, cut.strategy));
  }
  return found;
}

Result<StepParts> parts_of(const Graph& graph, const GraphRules& rules, const Strategy& strategy) {
  AUTOPAR_CHECK(graph.has_passes(), "the parts of a step of one pass");
  std::vector<int> part_of_op;
  for (const Op& op : graph.ops) part_of_op.push_back(op.phase == Phase::kUpdate ? 1 : 0);
  AUTOPAR_TRY(parts, cut_parts(graph, rules, strategy, part_of_op, 2));
  return StepParts{std::move(parts[0]), std::move(parts[1])};
}

}  // namespace autopar
