#include "autopar/phases.hpp"

namespace autopar {
namespace {

class Cutter {
 public:
  Cutter(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
         const std::vector<OpSpecs>& specs, bool update)
      : graph_(graph), rules_(rules), strategy_(strategy), specs_(specs), update_(update) {}

  StepPart run() {
    part_.graph.name = graph_.name;
    part_.graph.opset = graph_.opset;
    part_.strategy.mesh = strategy_.mesh;
    find_values();
    add_values();
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (is_mine(graph_.ops[o])) add_op(o);
    }
    for (ValueId input : graph_.inputs) {
      if (moved_[input.index()].valid()) part_.graph.inputs.push_back(moved_[input.index()]);
    }
    for (ValueId output : graph_.outputs) {
      if (is_made(output)) part_.graph.outputs.push_back(moved_[output.index()]);
    }
    settle_hubs();
    return std::move(part_);
  }

 private:
  bool is_mine(const Op& op) const { return (op.phase == Phase::kUpdate) == update_; }
  bool is_made(ValueId id) const {
    const OpId producer = graph_.value(id).producer;
    return producer.valid() && is_mine(graph_.op(producer));
  }

  // Those that its ops read and make; of inputs also those that no op reads, in the pass.
  void find_values() {
    wanted_.assign(graph_.values.size(), false);
    std::vector<bool> read(graph_.values.size());
    for (const Op& op : graph_.ops) {
      for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (ValueId id : *ids) {
          if (!id.valid()) continue;
          read[id.index()] = true;
          if (is_mine(op)) wanted_[id.index()] = true;
        }
      }
    }
    for (std::size_t v = 0; v < wanted_.size(); ++v) {
      if (!read[v] && !update_ && !graph_.values[v].producer.valid()) wanted_[v] = true;
    }
  }

  void add_values() {
    moved_.assign(graph_.values.size(), ValueId());
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (!wanted_[v]) continue;
      Value value = graph_.values[v];
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
  const bool update_;
  StepPart part_;
  std::vector<bool> wanted_;
  std::vector<ValueId> moved_;
  std::vector<const OpSpecs*> op_specs_;
};

}  // namespace

Result<StepParts> parts_of(const Graph& graph, const GraphRules& rules, const Strategy& strategy) {
  AUTOPAR_CHECK(graph.passes > 1, "the parts of a step of one pass");
  AUTOPAR_TRY(specs, op_specs_of(graph, rules, strategy));
  StepParts parts{Cutter(graph, rules, strategy, specs, false).run(),
                  Cutter(graph, rules, strategy, specs, true).run()};
  for (const StepPart* part : {&parts.pass, &parts.update}) {
    AUTOPAR_RETURN_IF_ERROR(verify(part->graph));
    AUTOPAR_RETURN_IF_ERROR(verify(part->graph, part->rules, part->strategy));
  }
  return parts;
}

}  // namespace autopar
