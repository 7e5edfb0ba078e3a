#include <string>

#include "autopar/strategy.hpp"

namespace autopar {
namespace {

Error value_error(const Value& value, const std::string& what) {
  return input_error("tensor '" + value.name + "' " + to_text(value.shape) + ": " + what);
}

Status verify_placement(const Value& value, const char* role, const Spec& spec, const Mesh& mesh) {
  if (Status valid = verify(spec, value.shape, mesh); !valid) {
    return value_error(value, std::string(role) + ": " + valid.error().message);
  }
  return Ok{};
}

bool is_stored(const Value& value) {
  return value.kind == ValueKind::kInput || value.kind == ValueKind::kParameter;
}

// What is true of a value's specs whatever its readers need.
Status verify_specs(const Value& value, const ValueSpecs& specs, bool is_output, const Mesh& mesh) {
  AUTOPAR_RETURN_IF_ERROR(verify_placement(value, "spec", specs.spec, mesh));
  AUTOPAR_RETURN_IF_ERROR(verify_placement(value, "hub spec", specs.hub, mesh));
  AUTOPAR_RETURN_IF_ERROR(verify_placement(value, "output spec", specs.output, mesh));
  if (is_stored(value) && !value.accumulates && !specs.spec.partial.empty()) {
    return value_error(value, "an input or parameter cannot be stored as a partial sum, found " +
                                  to_text(specs.spec, mesh));
  }
  if (value.kind == ValueKind::kConstant && !is_replicated(specs.spec)) {
    return value_error(
        value, "a constant lies whole on every device, found spec " + to_text(specs.spec, mesh));
  }
  if (is_output && !value.accumulates && !specs.output.partial.empty()) {
    return value_error(
        value, "an output cannot leave as a partial sum, found " + to_text(specs.output, mesh));
  }
  if (!is_output && specs.output != specs.hub) {
    return value_error(value, "not an output of the graph, so its output spec " +
                                  to_text(specs.output, mesh) + " must be its hub spec " +
                                  to_text(specs.hub, mesh));
  }
  return Ok{};
}

// The hub against what the readers need.
Status verify_hub(const Value& value, const ValueSpecs& specs, const Readers& readers,
                  const std::vector<OpSpecs>& op_specs, const Mesh& mesh) {
  if (value.kind == ValueKind::kConstant || readers.count() == 0) return Ok{};
  const Spec* need = nullptr;
  if (readers.count() == 1) {
    need = readers.is_output ? &specs.output
                             : &op_specs[readers.uses[0].op.index()]
                                    .inputs[static_cast<std::size_t>(readers.uses[0].port)];
    if (specs.hub == *need) return Ok{};
  }
  if (is_stored(value) && !value.accumulates && !specs.hub.partial.empty()) {
    return value_error(value,
                       "an input or parameter with several readers cannot have the partial "
                       "hub spec " +
                           to_text(specs.hub, mesh));
  }
  // A stored value whose reader needs a partial sum may become one at the reader.
  if (need != nullptr && !(is_stored(value) && !need->partial.empty())) {
    return value_error(value, "has one reader, so its hub spec must be what the reader needs, " +
                                  to_text(*need, mesh) + ", found " + to_text(specs.hub, mesh));
  }
  return Ok{};
}

Status verify_produced(const Graph& graph, const std::vector<OpSpecs>& op_specs,
                       const Strategy& strategy) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (!op.has_output(i)) continue;
      const Spec& expected = op_specs[o].outputs[i];
      const Spec& found = strategy.values[op.outputs[i].index()].spec;
      if (found == expected) continue;
      return value_error(graph.value(op.outputs[i]),
                         described(op) + " leaves it as " + to_text(expected, strategy.mesh) +
                             ", but its spec is " + to_text(found, strategy.mesh));
    }
  }
  return Ok{};
}

}  // namespace

Status verify(const Graph& graph, const GraphRules& rules, const Strategy& strategy) {
  AUTOPAR_TRY(op_specs, op_specs_of(graph, rules, strategy));
  return verify(graph, op_specs, readers_of(graph), strategy);
}

Status verify(const Graph& graph, const std::vector<OpSpecs>& op_specs,
              const std::vector<Readers>& readers, const Strategy& strategy) {
  if (strategy.values.size() != graph.values.size()) {
    return input_error("the graph has " + std::to_string(graph.values.size()) +
                       " values, the strategy " + std::to_string(strategy.values.size()));
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const ValueSpecs& specs = strategy.values[v];
    AUTOPAR_RETURN_IF_ERROR(verify_specs(value, specs, readers[v].is_output, strategy.mesh));
    AUTOPAR_RETURN_IF_ERROR(verify_hub(value, specs, readers[v], op_specs, strategy.mesh));
    if (meets_phases(graph, readers[v]) && specs.hub != specs.spec) {
      return value_error(value, "the passes and the update read it as it is stored, " +
                                    to_text(specs.spec, strategy.mesh) +
                                    ", so its hub spec cannot be " +
                                    to_text(specs.hub, strategy.mesh));
    }
  }
  return verify_produced(graph, op_specs, strategy);
}

}  // namespace autopar
