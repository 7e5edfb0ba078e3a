#include "autopar/phase_ops.hpp"

#include <iterator>

#include "autopar/hub_ops.hpp"

namespace autopar {

namespace {

// The first reader in a phase, and whether there is another one.
struct Reading {
  OpId first;
  bool several = false;
};

std::map<Phase, Reading> readings_of(const Graph& graph, const std::vector<Use>& uses) {
  std::map<Phase, Reading> readings;
  for (const Use& use : uses) {
    const auto [reading, is_new] = readings.try_emplace(graph.op(use.op).phase, Reading{use.op});
    if (!is_new && use.op != reading->second.first) reading->second.several = true;
  }
  return readings;
}

// Adds the phase ops of all values and tells every op's inputs.
class Adder {
 public:
  Adder(Graph& graph, const IsReserved& reserved) : graph_(graph), reserved_(reserved) {
    for (const Op& op : graph.ops) op_names_.take(op.name);
    for (const Value& value : graph.values) value_names_.take(value.name);
  }

  std::size_t run() {
    const std::vector<std::vector<Use>> uses = uses_of(graph_);
    for (std::size_t v = 0; v < uses.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      const Value& value = graph_.value(id);
      if (value.kind == ValueKind::kConstant || element_count(value.shape) == 1) continue;
      const std::map<Phase, Reading> readings = readings_of(graph_, uses[v]);
      if (readings.size() < 2) continue;
      for (const auto& [phase, reading] : readings) {
        if (reading.several) add(id, phase, reading.first, uses[v]);
      }
    }
    if (count_ > 0) place();
    return count_;
  }

 private:
  void add(ValueId id, Phase phase, OpId first, const std::vector<Use>& uses) {
    // Programs know accumulators by the beginning of their names.
    const std::string of = graph_.value(id).accumulates ? "sums." : "";
    const std::string name = of + graph_.value(id).name + "." + name_of(phase);
    const DType dtype = graph_.value(id).dtype;
    const Shape shape = graph_.value(id).shape;
    const ValueId output =
        graph_.add_value({.name = value_names_.unique(name), .dtype = dtype, .shape = shape});
    for (const Use& use : uses) {
      Op& op = graph_.op(use.op);
      if (op.phase == phase) op.inputs[static_cast<std::size_t>(use.port)] = output;
    }
    before_[first].push_back({.name = unreserved(op_names_, name, reserved_),
                              .type = "Identity",
                              .inputs = {id},
                              .outputs = {output},
                              .phase = phase});
    ++count_;
  }

  void place() {
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (std::size_t o = 0; o < ops.size(); ++o) {
      const auto added = before_.find(OpId(static_cast<std::int64_t>(o)));
      if (added != before_.end()) {
        for (Op& op : added->second) graph_.add_op(std::move(op));
      }
      graph_.add_op(std::move(ops[o]));
    }
  }

  Graph& graph_;
  const IsReserved& reserved_;
  Names op_names_, value_names_;
  std::map<OpId, std::vector<Op>> before_;
  std::size_t count_ = 0;
};

}  // namespace

std::string unreserved(Names& names, const std::string& stem, const IsReserved& reserved) {
  std::string name = names.unique(stem);
  while (reserved && reserved(name)) name = names.unique(stem);
  return name;
}

std::size_t add_phase_ops(Graph& graph, const IsReserved& reserved) {
  return Adder(graph, reserved).run();
}

std::optional<Assignment> handing_on(const Spec& spec, const Rule& rule, const Mesh& mesh) {
  Assignment assignment{std::vector<int>(mesh.axes.size(), -1)};
  const TensorFactors& factors = rule.inputs[0];
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    for (int axis : spec.dims[d]) {
      if (factors[d].empty()) return std::nullopt;
      assignment.factor_of_axis[static_cast<std::size_t>(axis)] = factors[d].front();
    }
  }
  for (int axis : spec.partial) {
    assignment.factor_of_axis[static_cast<std::size_t>(axis)] = rule.factor_index("partial0");
  }
  const auto specs = specs_of(rule, assignment, mesh);
  if (!specs || specs->inputs[0] != spec || specs->outputs[0] != spec) return std::nullopt;
  return assignment;
}

// A hub op, by contrast, is the only one that reads its value.
PhaseOps::PhaseOps(const Graph& graph) : is_phase_op_(graph.ops.size(), false) {
  std::vector<std::vector<Use>> uses;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (!is_hub_op(graph.ops[o])) continue;
    if (uses.empty()) uses = uses_of(graph);
    const ValueId value = graph.ops[o].inputs[0];
    if (uses[value.index()].size() == 1) continue;
    is_phase_op_[o] = true;
    op_of_[{value, graph.ops[o].phase}] = OpId(static_cast<std::int64_t>(o));
  }
}

OpId PhaseOps::of(ValueId value, Phase phase) const {
  const auto found = op_of_.find({value, phase});
  return found == op_of_.end() ? OpId() : found->second;
}

}  // namespace autopar
