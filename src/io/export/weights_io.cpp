// What a plan says of its weights: metadata_props autopar.weights and autopar.weights_io.
#include <algorithm>
#include <unordered_map>

#include "io/export/plan_metadata.hpp"
#include "io/files/json.hpp"

namespace autopar {
namespace {

// The shape and spec of one entry.
Result<BoundaryValue> layout_of(const Json& entry, const Value& value, const Mesh& mesh) {
  AUTOPAR_TRY(shape_field, entry.at("shape"));
  AUTOPAR_TRY(shape, shape_field.integers());
  AUTOPAR_TRY(spec_field, entry.at("spec"));
  AUTOPAR_TRY(spec_text, spec_field.text());
  const Result<Spec> spec = parse_spec(spec_text, mesh);
  if (!spec) return spec_field.error(spec.error().message);
  if (Status valid = verify(*spec, shape, mesh); !valid) return entry.error(valid.error().message);
  const Shape local = local_shape(*spec, shape, mesh);
  if (value.shape != local && value.shape != shape) {
    return entry.error("its slices are " + to_text(local) + ", the program has " +
                       to_text(value.shape));
  }
  return BoundaryValue{value.name, value.dtype, shape, *spec};
}

std::unordered_map<std::string, ValueId> initializers_of(const Graph& program) {
  std::unordered_map<std::string, ValueId> initializers;
  for (std::size_t v = 0; v < program.values.size(); ++v) {
    if (!program.values[v].has_data()) continue;
    initializers[program.values[v].name] = ValueId(static_cast<std::int64_t>(v));
  }
  return initializers;
}

}  // namespace

std::string json_weights(const std::vector<BoundaryValue>& weights, const Mesh& mesh) {
  std::string text = "{";
  for (const BoundaryValue& weight : weights) {
    text += (text.size() == 1 ? "" : ", ") + json_text(weight.name) +
            ": {\"shape\": " + json_list(weight.shape) + ", " + json_tensor_map(weight.spec, mesh) +
            "}";
  }
  return text + "}";
}

Status read_weights(const Properties& properties, const std::string& path, Plan& plan,
                    PlanMetadata& metadata) {
  const auto weights = properties.find("autopar.weights");
  if (weights == properties.end()) return Ok{};
  metadata.weights = weights->second;
  AUTOPAR_TRY(text, property(properties, "autopar.weights_io", path));
  const std::string where = path + ": metadata_props autopar.weights_io";
  AUTOPAR_TRY(document, parse_json(text, where));
  AUTOPAR_TRY(members, Json(document, where, "").members());
  const auto initializers = initializers_of(plan.program);
  std::vector<std::pair<ValueId, BoundaryValue>> found_weights;
  for (const auto& [name, entry] : members) {
    const auto found = initializers.find(name);
    if (found == initializers.end()) return entry.error("the plan has no such initializer");
    Value& value = plan.program.value(found->second);
    value.kind = ValueKind::kParameter;
    AUTOPAR_TRY(layout, layout_of(entry, value, plan.mesh));
    found_weights.emplace_back(found->second, std::move(layout));
  }
  // In the order of the program, as they were written; members come by name.
  std::sort(found_weights.begin(), found_weights.end(),
            [](const auto& a, const auto& b) { return a.first.index() < b.first.index(); });
  for (auto& [id, weight] : found_weights) metadata.weights_io.push_back(std::move(weight));
  return Ok{};
}

}  // namespace autopar
