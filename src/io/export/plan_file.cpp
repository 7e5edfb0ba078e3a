#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "autopar/export.hpp"
#include "io/export/external_data.hpp"
#include "io/export/fallback.hpp"
#include "io/export/model_proto.hpp"
#include "io/files/json.hpp"

namespace autopar {
namespace {

std::string folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

using Properties = std::map<std::string, std::string>;

Result<std::string> property(const Properties& properties, const std::string& key,
                             const std::string& path) {
  const auto found = properties.find(key);
  if (found == properties.end()) {
    return input_error(path + ": metadata_props has no \"" + key +
                       "\"; this is not a plan that autopar wrote");
  }
  return found->second;
}

Result<Mesh> mesh_of(const Json& json, std::vector<std::string>& tier_names) {
  Mesh mesh;
  AUTOPAR_TRY(axes, json.items());
  if (axes.empty()) return json.expected("at least one axis");
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
    boundary.push_back({value.name, value.dtype, shape, *spec});
  }
  return boundary;
}

Status check_opset(const onnx::ModelProto& model, const std::string& path) {
  for (const auto& import : model.opset_import()) {
    if (import.domain() == "ai.autopar" && import.version() != 1) {
      return input_error(path + ": is written for version " + std::to_string(import.version()) +
                         " of the ops of ai.autopar, this program knows version 1");
    }
  }
  return Ok{};
}

// {major, minor} of "1.2.3"; nothing where the text has another form.
std::optional<std::pair<int, int>> version_of(const std::string& text) {
  const char* const end = text.data() + text.size();
  std::pair<int, int> version;
  const auto [point, first] = std::from_chars(text.data(), end, version.first);
  if (first != std::errc{} || point == end || *point != '.') return std::nullopt;
  const auto [rest, second] = std::from_chars(point + 1, end, version.second);
  if (second != std::errc{} || (rest != end && *rest != '.')) return std::nullopt;
  return version;
}

// What a later version writes may mean what this one does not know.
Status check_version(const std::string& found, const std::string& path) {
  const auto version = version_of(found);
  const std::string where = path + ": metadata_props autopar.version: ";
  if (!version) {
    return input_error(where + "expected a version such as " AUTOPAR_VERSION ", found '" + found +
                       "'");
  }
  if (*version <= *version_of(AUTOPAR_VERSION)) return Ok{};
  return input_error(where + "written by autopar " + found +
                     ", this is " AUTOPAR_VERSION
                     "; make the plan again with this version, or use the later one");
}

}  // namespace

// A tensor that comes in and leaves as it is stands there once. Scalar inputs, which can only lie
// whole, are left out: readers that cut every entry with array tools would turn them into vectors.
std::string json_io(const Plan& plan) {
  std::set<std::string> seen;
  std::string text = "{";
  for (const auto* boundary : {&plan.inputs, &plan.outputs}) {
    for (const BoundaryValue& value : *boundary) {
      if (boundary == &plan.inputs && value.shape.empty()) continue;
      if (!seen.insert(value.name).second) continue;
      text += (seen.size() == 1 ? "" : ", ") + json_text(value.name) +
              ": {\"shape\": " + json_list(value.shape) + ", " +
              json_tensor_map(value.spec, plan.mesh) + "}";
    }
  }
  return text + "}";
}

Result<std::vector<std::string>> write_plan(const Plan& plan, const PlanMetadata& metadata,
                                            const std::string& path,
                                            const std::string& model_folder) {
  Result<LeanModel> lean = lean_model_of(plan.program);
  if (!lean) return input_error(path + ": " + lean.error().message);
  onnx::ModelProto& model = lean->proto;
  const bool has_collectives = std::any_of(plan.program.ops.begin(), plan.program.ops.end(),
                                           [](const Op& op) { return op.domain == "ai.autopar"; });
  if (!has_collectives) {  // the format promises the import
    auto* import = model.add_opset_import();
    import->set_domain("ai.autopar");
    import->set_version(1);
  }
  const auto add = [&](const char* key, const std::string& value) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("autopar.version", metadata.version);
  add("autopar.io", json_io(plan));
  add("autopar.world_size", std::to_string(plan.mesh.size()));
  add("autopar.mesh", json_mesh(plan.mesh, metadata.tier_names));
  add("autopar.model_sha256", metadata.model_sha256);
  add("autopar.strategy_sha256", metadata.strategy_sha256);
  if (metadata.fallback_functions) add_fallback_functions(model);
  AUTOPAR_RETURN_IF_ERROR(check_onnx(model, path));
  AUTOPAR_TRY(warnings,
              place_external_data(plan.program, model_folder, folder_of(path), kLinkBytes));
  AUTOPAR_RETURN_IF_ERROR(write_model(*lean, path));
  return warnings;
}

Result<PlanFile> read_plan(const std::string& path) {
  AUTOPAR_TRY(lean, read_model(path));
  const onnx::ModelProto& model = lean.proto;
  Properties properties;
  for (const auto& entry : model.metadata_props()) properties[entry.key()] = entry.value();
  PlanFile file;
  if (const auto dialect = properties.find("autopar.dialect"); dialect != properties.end()) {
    return input_error(path + ": is a plan in the dialect " + dialect->second +
                       ", for another runtime; read the plan.onnx beside it");
  }
  AUTOPAR_TRY(version, property(properties, "autopar.version", path));
  AUTOPAR_RETURN_IF_ERROR(check_version(version, path));
  AUTOPAR_TRY(io_text, property(properties, "autopar.io", path));
  AUTOPAR_TRY(mesh_text, property(properties, "autopar.mesh", path));
  AUTOPAR_TRY(world_size, property(properties, "autopar.world_size", path));
  AUTOPAR_RETURN_IF_ERROR(check_opset(model, path));
  file.metadata.version = version;
  file.metadata.model_sha256 = properties["autopar.model_sha256"];
  file.metadata.strategy_sha256 = properties["autopar.strategy_sha256"];
  file.metadata.fallback_functions = properties.count("autopar.fallback_functions") != 0;

  const std::string where = path + ": metadata_props autopar.";
  AUTOPAR_TRY(mesh_document, parse_json(mesh_text, where + "mesh"));
  AUTOPAR_TRY(mesh, mesh_of(Json(mesh_document, where + "mesh", ""), file.metadata.tier_names));
  file.plan.mesh = mesh;
  file.world_size = mesh.size();
  if (world_size != std::to_string(file.world_size)) {
    return input_error(where + "world_size: expected the product of the mesh " + to_text(mesh) +
                       ", found '" + world_size + "'");
  }
  AUTOPAR_TRY(program, graph_of(lean, path));
  file.plan.program = std::move(program);
  AUTOPAR_TRY(io_document, parse_json(io_text, where + "io"));
  const Json io(io_document, where + "io", "");
  AUTOPAR_TRY(inputs, boundary_of(file.plan.program.inputs, file.plan, io));
  AUTOPAR_TRY(outputs, boundary_of(file.plan.program.outputs, file.plan, io));
  file.plan.inputs = std::move(inputs);
  file.plan.outputs = std::move(outputs);
  if (Status valid = verify(file.plan); !valid) {
    return input_error(path + ": " + valid.error().message);
  }
  return file;
}

Status write_graph_onnx(const Graph& graph, const std::string& path) {
  Result<LeanModel> model = lean_model_of(graph);
  if (!model) return input_error(path + ": " + model.error().message);
  AUTOPAR_RETURN_IF_ERROR(check_onnx(model->proto, path));
  return write_model(*model, path);
}

}  // namespace autopar
