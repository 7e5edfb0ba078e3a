// autopar show --json of what is not JSON itself: models and plans.
#include "cli/show_json.hpp"

#include <nlohmann/json.hpp>

#include "autopar/ops.hpp"
#include "autopar/partition.hpp"

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;

Json value_json(const Value& value) {
  return {{"name", value.name}, {"dtype", name_of(value.dtype)}, {"shape", value.shape}};
}

}  // namespace

std::string show_model_json(const ImportedModel& model, bool all_ops) {
  const Graph& graph = model.graph;
  Json j = {{"format", "autopar-model-summary"},
            {"version", 1},
            {"name", graph.name},
            {"sha256", model.sha256},
            {"opset", graph.opset}};
  std::map<std::string, std::pair<int, Flops>> types;
  Flops flops = 0;
  for (const Op& op : graph.ops) {
    const Flops of_op = work_of(op, shapes_of(graph, op)).flops;
    auto& [count, sum] = types[op.type];
    ++count;
    sum += of_op;
    flops += of_op;
  }
  j["op_count"] = graph.ops.size();
  j["flops"] = flops;
  j["op_types"] = Json::array();
  for (const auto& [type, entry] : types) {
    j["op_types"].push_back({{"type", type}, {"count", entry.first}, {"flops", entry.second}});
  }
  for (const char* key : {"inputs", "parameters", "outputs"}) j[key] = Json::array();
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kInput) j["inputs"].push_back(value_json(value));
    if (value.kind == ValueKind::kParameter) j["parameters"].push_back(value_json(value));
  }
  for (ValueId id : graph.outputs) j["outputs"].push_back(value_json(graph.value(id)));
  if (all_ops) {
    j["ops"] = Json::array();
    for (const Op& op : graph.ops) j["ops"].push_back({{"name", op.name}, {"type", op.type}});
  }
  j["warnings"] = model.warnings;
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {}  // namespace

Result<Json> program_json(const PlanFile& file) {
  const Plan& plan = file.plan;
  Json j = {{"format", "autopar-plan-summary"},
            {"version", 1},
            {"world_size", file.world_size},
            {"by_hand", file.by_hand},
            {"op_count", plan.program.ops.size()}};
  if (!file.dialect.empty()) j["dialect"] = file.dialect;
  j["mesh"] = Json::array();
  for (const Axis& axis : plan.mesh.axes) {
    j["mesh"].push_back({{"name", axis.name}, {"size", axis.size}});
  }
  if (!file.metadata.ranks.empty()) {
    if (file.metadata.stage >= 0) j["stage"] = file.metadata.stage;
    j["ranks"] = file.ranks;
  }
  const auto add = [&](const char* key, const std::vector<BoundaryValue>& values) {
    j[key] = Json::array();
    for (const BoundaryValue& v : values) {
      j[key].push_back({{"name", v.name},
                        {"dtype", name_of(v.dtype)},
                        {"shape", v.shape},
                        {"local_shape", local_shape(v.spec, v.shape, plan.mesh)},
                        {"spec", to_text(v.spec, plan.mesh)}});
    }
  };
  add("inputs", plan.inputs);
  add("outputs", plan.outputs);
  AUTOPAR_TRY(collectives, collectives_of(plan));
  j["collectives"] = Json::array();
  for (const ProgramCollective& c : collectives) {
    Json axes = Json::array();
    for (int axis : c.collective.axes) {
      axes.push_back(plan.mesh.axes[static_cast<std::size_t>(axis)].name);
    }
    const double bytes = static_cast<double>(c.input_bytes);
    j["collectives"].push_back(
        {{"name", plan.program.op(c.op).name},
         {"kind", name_of(c.collective.kind)},
         {"mesh_axes", axes},
         {"group_size", c.group_size},
         {"input_bytes", bytes},
         {"sent_bytes", sent_bytes(c.collective.kind, bytes, c.group_size)}});
    // Where axes do not say it.
    if (axes.empty()) j["collectives"].back()["groups"] = c.groups.values();
  }
  if (!file.warnings.empty()) j["warnings"] = file.warnings;
  return j;
}

Result<std::string> show_programs_json(const std::vector<PlanFile>& files) {
  Json all = Json::array();
  for (const PlanFile& file : files) {
    AUTOPAR_TRY(j, program_json(file));
    all.push_back(std::move(j));
  }
  const Json& document = all.size() == 1 ? all[0] : all;
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace autopar::cli
