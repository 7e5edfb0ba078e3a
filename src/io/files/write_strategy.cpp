#include "autopar/files.hpp"
#include "autopar/phase_ops.hpp"
#include "autopar/strategy_lines.hpp"
#include "io/files/json.hpp"

namespace autopar {
namespace {

std::vector<std::string> tier_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Tier& tier : cluster.tiers) names.push_back(tier.name);
  return names;
}

std::string named(const std::string& name, const std::string& sha256) {
  return "{\"name\": " + json_text(name) + ", \"sha256\": " + json_text(sha256) + "}";
}

// Axes that replicate the op are left out.
std::string assignment_json(const Assignment& assignment, const Rule& rule, const Mesh& mesh) {
  std::string text = "{";
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    const int factor = assignment.factor_of_axis[a];
    if (factor < 0) continue;
    text += (text.size() == 1 ? "" : ", ") + json_text(mesh.axes[a].name) + ": " +
            json_text(rule.factors[static_cast<std::size_t>(factor)].name);
  }
  return text + "}";
}

std::string op_json(const Op& op, const Rule& rule, const Assignment& assignment,
                    const OpSpecs& specs, const Mesh& mesh, bool is_repeated) {
  return "{\"type\": " + json_text(op.type) +
         ", \"assignment\": " + assignment_json(assignment, rule, mesh) +
         ", \"in_strategy\": " + json_list(strategy_of(specs.inputs, mesh)) +
         ", \"out_strategy\": " + json_list(strategy_of(specs.outputs, mesh)) +
         (is_repeated ? ", \"recompute\": true}" : "}");
}

// How the ops of one phase get a value; null: each reshards it from its hub for itself.
struct HubsOfPhases {
  const Spec* forward = nullptr;
  const Spec* backward = nullptr;
  const Spec* update = nullptr;
};
HubsOfPhases hubs_of_phases(const Graph& graph, const PhaseOps& phase_ops, ValueId id,
                            const Strategy& strategy) {
  const auto hub = [&](Phase phase) -> const Spec* {
    const OpId op = phase_ops.of(id, phase);
    return op.valid() ? &strategy.values[graph.op(op).outputs[0].index()].hub : nullptr;
  };
  return {hub(Phase::kForward), hub(Phase::kBackward), hub(Phase::kUpdate)};
}

std::string tensor_json(const Value& value, const ValueSpecs& specs, const HubsOfPhases& hubs,
                        const Mesh& mesh) {
  std::string text = "{\"shape\": " + json_list(value.shape) +
                     ", \"local_shape\": " + json_list(local_shape(specs.spec, value.shape, mesh)) +
                     ", " + json_tensor_map(specs.spec, mesh);
  const Spec& hub = hubs.forward != nullptr ? *hubs.forward : specs.hub;
  const auto add = [&](const char* field, const Spec& spec, const Spec& otherwise) {
    if (spec == otherwise) return;
    text += ", " + json_text(field) + ": " + json_text(to_text(spec, mesh));
  };
  add("hub_spec", hub, specs.spec);
  add("kept_spec", specs.hub, hub);
  if (hubs.backward != nullptr) add("backward_hub_spec", *hubs.backward, hub);
  if (hubs.update != nullptr) add("update_hub_spec", *hubs.update, hub);
  if (specs.output != specs.hub) {
    text += ", \"output_spec\": " + json_text(to_text(specs.output, mesh));
  }
  return text + "}";
}

// A constant lies whole on every device; where that is all, there is nothing to say.
bool is_plain_constant(const Value& value, const ValueSpecs& specs) {
  return value.kind == ValueKind::kConstant && is_replicated(specs.spec) &&
         is_replicated(specs.hub) && is_replicated(specs.output);
}

std::string cost_json(const StrategyFile::Cost& cost) {
  const std::string rest = ", \"gap\": " + json_number(cost.gap) +
                           ", \"memory_bytes\": " + std::to_string(cost.memory_bytes) + "}";
  const std::string seconds = "\"seconds\": " + json_number(cost.seconds);
  if (!cost.price) {
    return "{" + seconds + ", \"lower_bound_seconds\": " + json_number(cost.lower_bound_seconds) +
           rest;
  }
  return "{\"cost_model\": " + json_text(cost.price->cost_model) +
         ", \"cost_unit\": " + json_text(cost.price->unit) +
         ", \"cost\": " + json_number(cost.price->cost) +
         ", \"lower_bound_cost\": " + json_number(cost.price->lower_bound) + ", " + seconds + rest;
}

std::string names_json(const std::vector<std::string>& names) {
  std::string text = "[";
  for (const std::string& name : names) text += (text.size() > 1 ? ", " : "") + json_text(name);
  return text + "]";
}

std::string json_levels(const std::vector<StrategyFile::LevelFrom>& levels) {
  std::string text = "[";
  for (const auto& [op, level] : levels) {
    text += std::string(text.size() > 1 ? ", " : "") + "{\"from\": " + json_text(op) +
            ", \"recompute\": " + json_text(level) + "}";
  }
  return text + "]";
}

std::string batch_json(const PlannedBatch& batch) {
  std::string text = "{\"size\": " + std::to_string(batch.size);
  if (batch.dim > 0) text += ", \"dim\": " + std::to_string(batch.dim);
  if (!batch.data_inputs.empty()) text += ", \"data_inputs\": " + names_json(batch.data_inputs);
  return text + "}";
}

// All ranks hold all of the model: one stage, one chunk.
std::string step_json(const Graph& graph, const Mesh& mesh, const Cluster& cluster) {
  const PhaseOps phase_ops(graph);
  const Op* first = nullptr;
  const Op* last = nullptr;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const bool is_own = phase_ops.contains(OpId(static_cast<std::int64_t>(o)));
    if (graph.ops[o].phase != Phase::kForward || is_own) continue;
    if (first == nullptr) first = &graph.ops[o];
    last = &graph.ops[o];
  }
  const std::string ops =
      last == nullptr ? "[]" : "[" + json_text(first->name) + ", " + json_text(last->name) + "]";
  const std::string copies =
      graph.copies > 1 ? ", \"copies\": " + std::to_string(graph.copies) : "";
  return "{\"micro_batches\": " + std::to_string(graph.passes) + copies +
         ", \"schedule\": \"1f1b\", \"stages\": [{\"first_rank\": 0, \"ranks\": " +
         std::to_string(mesh.size()) + ", \"mesh\": " + json_mesh(mesh, tier_names(cluster)) +
         ", \"chunks\": [{\"chunk\": 0, \"ops\": " + ops + "}]}]}";
}

}  // namespace

StrategyLines strategy_lines(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                             const Cluster& cluster, const StrategyOrigin& origin) {
  const Mesh& mesh = strategy.mesh;
  const Result<std::vector<OpSpecs>> specs = op_specs_of(graph, rules, strategy);
  AUTOPAR_CHECK(specs.ok(), "strategy_to_json: " + specs.error().message);
  std::string text = "{\"format\": \"autopar-strategy\", \"version\": 1,\n";
  text += " \"model\": " + named(origin.model_name, origin.model_sha256) + ",\n";
  text += " \"cluster\": " + named(origin.cluster_name, origin.cluster_sha256) + ",\n";
  if (!origin.profile_name.empty()) {
    text += " \"profile\": " + named(origin.profile_name, origin.profile_sha256) + ",\n";
  }
  text += " \"mesh\": " + json_mesh(mesh, tier_names(cluster)) + ",\n";
  text += " \"searcher\": " + json_text(origin.searcher) + ",\n";
  if (!origin.recompute.empty() && origin.recompute != "none") {
    text += " \"recompute\": " + json_text(origin.recompute) + ",\n";
  }
  if (!origin.recompute_from.empty()) {
    text += " \"recompute_from\": " + json_levels(origin.recompute_from) + ",\n";
  }
  if (!origin.checkpoints.empty()) {
    text += " \"checkpoints\": " + names_json(origin.checkpoints) + ",\n";
  }
  if (graph.has_passes()) text += " \"step\": " + step_json(graph, mesh, cluster) + ",\n";
  if (!origin.training.empty()) text += " \"training\": " + origin.training + ",\n";
  if (origin.batch.size > 0) text += " \"batch\": " + batch_json(origin.batch) + ",\n";
  if (origin.memory_limit > 0) {
    text += " \"memory_limit_bytes\": " + std::to_string(origin.memory_limit) + ",\n";
  }
  if (origin.gradient_bucket > 0) {
    text += " \"gradient_bucket\": " + std::to_string(origin.gradient_bucket) + ",\n";
  }
  text += " \"cost\": " + cost_json(origin.cost);
  StrategyLines lines{std::move(text), {}, {}};
  const PhaseOps phase_ops(graph);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (phase_ops.contains(OpId(static_cast<std::int64_t>(o)))) continue;
    const Op& op = graph.ops[o];
    lines.ops.emplace_back(op.name,
                           op_json(op, rules.rules[o], strategy.assignments[o], (*specs)[o], mesh,
                                   origin.repeated.count(op.name) != 0));
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (is_plain_constant(value, strategy.values[v])) continue;
    if (value.producer.valid() && phase_ops.contains(value.producer)) continue;
    const ValueId id(static_cast<std::int64_t>(v));
    lines.tensors.emplace_back(value.name,
                               tensor_json(value, strategy.values[v],
                                           hubs_of_phases(graph, phase_ops, id, strategy), mesh));
  }
  return lines;
}

std::string to_text(const StrategyLines& lines) {
  std::string text = lines.head;
  const auto add = [&](const char* key, const std::vector<StrategyLines::Member>& members) {
    text += std::string(",\n \"") + key + "\": {";
    const char* separator = "\n  ";
    for (const auto& [name, value] : members) {
      text += separator + json_text(name) + ": " + value;
      separator = ",\n  ";
    }
    text += "}";
  };
  add("ops", lines.ops);
  add("tensors", lines.tensors);
  return text + "}\n";
}

std::string strategy_to_json(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                             const Cluster& cluster, const StrategyOrigin& origin) {
  return to_text(strategy_lines(graph, rules, strategy, cluster, origin));
}

}  // namespace autopar
