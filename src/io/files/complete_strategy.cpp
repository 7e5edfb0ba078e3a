#include "autopar/files.hpp"
#include "autopar/phase_ops.hpp"
#include "layout/tensor_map.hpp"

namespace autopar {
namespace {

Error file_error(const StrategyFile& file, const std::string& what) {
  return input_error(file.path + ": " + what);
}

const Tier* tier_named(const Cluster& cluster, const std::string& name) {
  for (const Tier& tier : cluster.tiers) {
    if (tier.name == name) return &tier;
  }
  return nullptr;
}

Result<Assignment> assignment_of(const StrategyFile& file, const Op& op, const Rule& rule,
                                 const Mesh& mesh) {
  const auto pin = file.pins.ops.find(op.name);
  if (pin == file.pins.ops.end() || !pin->second.assignment) {
    return file_error(file, "ops: nothing is assigned to op '" + op.name + "' (" + op.type + ")");
  }
  Assignment assignment{std::vector<int>(mesh.axes.size(), -1)};
  for (const auto& [axis, factor] : *pin->second.assignment) {
    const int a = mesh.axis_index(axis);
    if (a < 0) {
      return file_error(file,
                        "ops." + op.name + ".assignment: the mesh has no axis '" + axis + "'");
    }
    if (factor.empty() || factor == "none") continue;
    const int f = rule.factor_index(factor);
    if (f < 0) {
      return file_error(file, "ops." + op.name + ".assignment." + axis + ": " + op.type +
                                  " has no factor '" + factor + "'; its rule is \"" +
                                  to_text(rule) + "\"");
    }
    assignment.factor_of_axis[static_cast<std::size_t>(a)] = f;
  }
  return assignment;
}

Result<Spec> spec_of(const StrategyFile& file, const Value& value, const char* field,
                     const std::string& text, const Mesh& mesh) {
  Result<Spec> spec = parse_spec(text, mesh);
  if (spec) {
    if (Status valid = verify(*spec, value.shape, mesh); !valid) spec = valid.error();
  }
  if (!spec) {
    return file_error(file, "tensors." + value.name + "." + field + ": " + spec.error().message);
  }
  return spec;
}

// What stands beside a spec in other words must be the same.
Status check_tensor_map(const StrategyFile& file, const Value& value, const ValuePin& pin,
                        const Spec& spec, const Mesh& mesh) {
  if (pin.device_matrix.empty()) return Ok{};
  const auto dims = read_tensor_map(pin.device_matrix, pin.tensor_map, mesh);
  const std::string where = "tensors." + value.name + ".";
  if (!dims) return file_error(file, where + dims.error().message);
  // The one axis of one device splits nothing.
  if (*dims == spec.dims || mesh.size() == 1) return Ok{};
  return file_error(file, where + "spec: " + pin.spec + " and the tensor_map, which is " +
                              to_text(Spec{*dims, {}, Reduction::kSum}, mesh) + ", disagree");
}

Result<ValueSpecs> value_specs_of(const StrategyFile& file, const Value& value, const Mesh& mesh) {
  const auto pin = file.pins.values.find(value.name);
  if (pin == file.pins.values.end() || pin->second.spec.empty()) {
    if (value.kind != ValueKind::kConstant) {
      return file_error(file, "tensors: there is no spec of tensor '" + value.name + "'");
    }
    const Spec whole = replicated(value.shape.size());
    return ValueSpecs{whole, whole, whole};
  }
  const ValuePin& texts = pin->second;
  ValueSpecs specs;
  AUTOPAR_TRY(spec, spec_of(file, value, "spec", texts.spec, mesh));
  AUTOPAR_RETURN_IF_ERROR(check_tensor_map(file, value, texts, spec, mesh));
  specs.spec = specs.hub = spec;
  if (!texts.kept_spec.empty()) {
    AUTOPAR_TRY(kept, spec_of(file, value, "kept_spec", texts.kept_spec, mesh));
    specs.hub = kept;
  } else if (!texts.hub_spec.empty()) {
    AUTOPAR_TRY(hub, spec_of(file, value, "hub_spec", texts.hub_spec, mesh));
    specs.hub = hub;
  }
  specs.output = specs.hub;
  if (!texts.output_spec.empty()) {
    AUTOPAR_TRY(output, spec_of(file, value, "output_spec", texts.output_spec, mesh));
    specs.output = output;
  }
  return specs;
}

// What a phase gets, where the file does not say: what the forward pass gets.
struct HubText {
  const char* field;
  std::string text;
};
HubText hub_of_phase(const ValuePin& pin, Phase phase) {
  const HubText forward =
      pin.hub_spec.empty() ? HubText{"spec", pin.spec} : HubText{"hub_spec", pin.hub_spec};
  switch (phase) {
    case Phase::kForward:
      return forward;
    case Phase::kBackward:
      if (pin.backward_hub_spec.empty()) return forward;
      return {"backward_hub_spec", pin.backward_hub_spec};
    case Phase::kUpdate:
      if (pin.update_hub_spec.empty()) return forward;
      return {"update_hub_spec", pin.update_hub_spec};
  }
  return forward;
}

// A phase op: hands on the hub of the value that it reads, and says what its phase gets.
Result<Assignment> hand_on(const StrategyFile& file, const Graph& graph, OpId id, const Rule& rule,
                           Strategy& strategy) {
  const Op& op = graph.op(id);
  const Value& value = graph.value(op.inputs[0]);
  const Spec& kept = strategy.values[op.inputs[0].index()].hub;
  const auto assignment = handing_on(kept, rule, strategy.mesh);
  if (!assignment) {
    return file_error(file, "tensors." + value.name + ": op '" + op.name +
                                "' cannot hand it on as " + to_text(kept, strategy.mesh));
  }
  const HubText text = hub_of_phase(file.pins.values.at(value.name), op.phase);
  AUTOPAR_TRY(hub, spec_of(file, value, text.field, text.text, strategy.mesh));
  strategy.values[op.outputs[0].index()] = {kept, hub, hub};
  return *assignment;
}

}  // namespace

Result<std::optional<Mesh>> mesh_of(const StrategyFile& file, const Cluster& cluster) {
  if (file.mesh.empty()) return std::optional<Mesh>();
  std::vector<std::int64_t> sizes;
  std::vector<const StrategyFile::MeshAxis*> axes;  // those that the mesh keeps
  for (const auto& axis : file.mesh) {
    sizes.push_back(axis.size);
    if (axis.size > 1) axes.push_back(&axis);
  }
  Result<Mesh> mesh = make_mesh(cluster, sizes);
  if (!mesh) return file_error(file, mesh.error().message);
  if (axes.empty()) axes.push_back(&file.mesh.front());
  AUTOPAR_CHECK(axes.size() == mesh->axes.size(), "make_mesh drops axes of size 1 only");
  for (std::size_t a = 0; a < axes.size(); ++a) {
    Axis& axis = mesh->axes[a];
    const std::string where = "mesh axis '" + axes[a]->name + "': ";
    if (!axes[a]->tier.empty() && cluster.device_count() > 1) {
      const std::string& expected = cluster.tiers[static_cast<std::size_t>(axis.tier)].name;
      if (tier_named(cluster, axes[a]->tier) == nullptr) {
        return file_error(
            file, where + "the cluster '" + cluster.name + "' has no tier '" + axes[a]->tier + "'");
      }
      if (axes[a]->tier != expected) {
        return file_error(file, where + "lies in the tier '" + expected + "' of the cluster '" +
                                    cluster.name + "', the file says '" + axes[a]->tier + "'");
      }
    }
    axis.name = axes[a]->name;
  }
  return std::optional<Mesh>(std::move(*mesh));
}

bool is_complete(const Graph& graph, const StrategyFile& file) {
  if (file.mesh.empty()) return false;
  const PhaseOps phase_ops(graph);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (phase_ops.contains(OpId(static_cast<std::int64_t>(o)))) continue;
    const auto pin = file.pins.ops.find(graph.ops[o].name);
    if (pin == file.pins.ops.end() || !pin->second.assignment) return false;
  }
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kConstant) continue;
    if (value.producer.valid() && phase_ops.contains(value.producer)) continue;
    const auto pin = file.pins.values.find(value.name);
    if (pin == file.pins.values.end() || pin->second.spec.empty()) return false;
  }
  return true;
}

Result<Strategy> complete_strategy(const Graph& graph, const GraphRules& rules,
                                   const Cluster& cluster, const StrategyFile& file) {
  AUTOPAR_CHECK(rules.rules.size() == graph.ops.size(), "one rule per op");
  AUTOPAR_TRY(mesh, mesh_of(file, cluster));
  if (!mesh) return file_error(file, "the field \"mesh\" is missing");
  Strategy strategy;
  strategy.mesh = *mesh;
  const PhaseOps phase_ops(graph);
  strategy.values.reserve(graph.values.size());
  for (const Value& value : graph.values) {
    if (value.producer.valid() && phase_ops.contains(value.producer)) {
      strategy.values.emplace_back();  // follows below
      continue;
    }
    AUTOPAR_TRY(specs, value_specs_of(file, value, strategy.mesh));
    strategy.values.push_back(std::move(specs));
  }
  strategy.assignments.reserve(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const OpId id(static_cast<std::int64_t>(o));
    const bool is_phase_op = phase_ops.contains(id);
    AUTOPAR_TRY(assignment, is_phase_op
                                ? hand_on(file, graph, id, rules.rules[o], strategy)
                                : assignment_of(file, graph.ops[o], rules.rules[o], strategy.mesh));
    strategy.assignments.push_back(std::move(assignment));
  }
  if (Status valid = verify(graph, rules, strategy); !valid) {
    return file_error(file, valid.error().message);
  }
  return strategy;
}

}  // namespace autopar
