#include "io/export/plan_metadata.hpp"

#include <algorithm>
#include <charconv>

#include "io/files/json.hpp"

namespace autopar {
namespace {

std::string where_of(const std::string& path, const std::string& key) {
  return path + ": metadata_props " + key;
}

Result<Mesh> mesh_of_json(const Json& json, std::vector<std::string>& tier_names) {
  Mesh mesh;
  AUTOPAR_TRY(axes, json.items());
  if (axes.empty() || axes.size() > static_cast<std::size_t>(kMaxMeshAxes)) {
    return json.expected("1 to " + std::to_string(kMaxMeshAxes) + " axes");
  }
  std::int64_t stride = 1;
  for (auto field = axes.rbegin(); field != axes.rend(); ++field) {
    AUTOPAR_TRY(name_field, field->at("name"));
    AUTOPAR_TRY(name, name_field.text());
    AUTOPAR_TRY(size_field, field->at("size"));
    AUTOPAR_TRY(size, size_field.integer());
    AUTOPAR_TRY(tier_field, field->find("tier"));
    std::string tier_name;
    if (tier_field) {
      AUTOPAR_TRY(text, tier_field->text());
      tier_name = text;
    }
    constexpr std::int64_t kMaxDevices = std::int64_t{1} << 20;
    if (size < 1 || size > kMaxDevices / stride) return size_field.expected("a sensible size");
    if (mesh.axis_index(name) >= 0) return name_field.expected("a name that is not taken");
    const auto tier = std::find(tier_names.begin(), tier_names.end(), tier_name);
    mesh.axes.push_back({name, size, static_cast<int>(tier - tier_names.begin()), stride});
    if (tier == tier_names.end()) tier_names.push_back(tier_name);
    stride *= size;
  }
  std::reverse(mesh.axes.begin(), mesh.axes.end());
  return mesh;
}

// Others read the layout from tensor_map: it must say what the spec says, where it is there.
Status check_tensor_map(const Json& entry, const Spec& spec, const Mesh& mesh) {
  AUTOPAR_TRY(given, entry.find("tensor_map"));
  if (!given) return Ok{};
  AUTOPAR_TRY(items, given->items());
  const auto expected = tensor_map(spec, mesh);
  bool same = items.size() == expected.size();
  for (std::size_t d = 0; same && d < items.size(); ++d) {
    std::vector<std::int64_t> axes;
    if (const auto list = items[d].integers()) {
      axes = *list;
    } else {
      AUTOPAR_TRY(axis, items[d].integer());
      if (axis != -1) axes.push_back(axis);
    }
    same = std::equal(axes.begin(), axes.end(), expected[d].begin(), expected[d].end());
  }
  return same ? Status(Ok{})
              : given->error("does not say what the spec " + to_text(spec, mesh) + " says");
}

Result<std::vector<BoundaryValue>> boundary_of(const std::vector<ValueId>& ids, const Plan& plan,
                                               const Json& io) {
  std::vector<BoundaryValue> boundary;
  for (ValueId id : ids) {
    const Value& value = plan.program.value(id);
    AUTOPAR_TRY(given, io.find(value.name));
    if (!given && value.shape.empty()) {
      boundary.push_back({value.name, value.dtype, {}, replicated(0)});
      continue;
    }
    AUTOPAR_TRY(entry, io.at(value.name));
    AUTOPAR_TRY(shape_field, entry.at("shape"));
    AUTOPAR_TRY(shape, shape_field.integers());
    AUTOPAR_TRY(spec_field, entry.at("spec"));
    AUTOPAR_TRY(spec_text, spec_field.text());
    const Result<Spec> spec = parse_spec(spec_text, plan.mesh);
    if (!spec) return spec_field.error(spec.error().message);
    AUTOPAR_RETURN_IF_ERROR(check_tensor_map(entry, *spec, plan.mesh));
    boundary.push_back({value.name, value.dtype, shape, *spec});
  }
  return boundary;
}

// Nothing but digits; -1 where the property is absent.
Result<std::int64_t> number_of(const Properties& properties, const std::string& key,
                               const std::string& path) {
  const auto found = properties.find(key);
  if (found == properties.end()) return std::int64_t{-1};
  const std::string& text = found->second;
  std::int64_t number = -1;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && rest == text.data() + text.size() && number >= 0) return number;
  return input_error(where_of(path, key) + ": expected a number, found '" + text + "'");
}

}  // namespace

Properties properties_of(const onnx::ModelProto& model) {
  Properties properties;
  for (const auto& entry : model.metadata_props()) properties[entry.key()] = entry.value();
  return properties;
}

Result<std::string> property(const Properties& properties, const std::string& key,
                             const std::string& path) {
  const auto found = properties.find(key);
  if (found == properties.end()) {
    return input_error(path + ": metadata_props has no \"" + key +
                       "\"; this is not a plan that autopar wrote");
  }
  return found->second;
}

Result<StagePlace> stage_place_of(const Properties& properties, const std::string& path) {
  StagePlace place;
  AUTOPAR_TRY(stage, number_of(properties, "autopar.stage", path));
  AUTOPAR_TRY(world_size, number_of(properties, "autopar.world_size", path));
  place.stage = stage;
  place.world_size = std::max<std::int64_t>(world_size, 0);
  const auto found = properties.find("autopar.ranks");
  if (found == properties.end()) return place;
  const std::string where = where_of(path, "autopar.ranks");
  AUTOPAR_TRY(document, parse_json(found->second, where));
  AUTOPAR_TRY(ranks, Json(document, where, "").integers());
  if (ranks.empty()) return input_error(where + ": expected at least one rank");
  place.ranks = ranks;
  return place;
}

Result<Mesh> mesh_of(const Properties& properties, const std::string& path,
                     std::vector<std::string>& tier_names) {
  AUTOPAR_TRY(text, property(properties, "autopar.mesh", path));
  const std::string where = where_of(path, "autopar.mesh");
  AUTOPAR_TRY(document, parse_json(text, where));
  return mesh_of_json(Json(document, where, ""), tier_names);
}

std::string json_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + json_text(name);
  return "[" + text + "]";
}

Result<std::optional<std::vector<std::string>>> data_of(const Properties& properties,
                                                        const std::string& path) {
  const auto said = properties.find(kDataKey);
  if (said == properties.end()) return std::optional<std::vector<std::string>>();
  const std::string where = where_of(path, kDataKey);
  AUTOPAR_TRY(document, parse_json(said->second, where));
  AUTOPAR_TRY(items, Json(document, where, "").items());
  std::vector<std::string> names;
  for (const Json& item : items) {
    AUTOPAR_TRY(name, item.text());
    names.push_back(name);
  }
  return std::optional(std::move(names));
}

Status read_boundary(const Properties& properties, const std::string& path, Plan& plan) {
  AUTOPAR_TRY(text, property(properties, "autopar.io", path));
  const std::string where = where_of(path, "autopar.io");
  AUTOPAR_TRY(document, parse_json(text, where));
  const Json io(document, where, "");
  AUTOPAR_TRY(inputs, boundary_of(plan.program.inputs, plan, io));
  AUTOPAR_TRY(outputs, boundary_of(plan.program.outputs, plan, io));
  plan.inputs = std::move(inputs);
  plan.outputs = std::move(outputs);
  return Ok{};
}

}  // namespace autopar
