#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>

#include "autopar/export.hpp"
#include "autopar/program_bytes.hpp"
#include "autopar/training_roles.hpp"
#include "io/export/external_data.hpp"
#include "io/export/fallback.hpp"
#include "io/export/model_bytes.hpp"
#include "io/export/plan_metadata.hpp"
#include "io/export/programs.hpp"
#include "io/files/json.hpp"
#include "io/import/external_locations.hpp"
#include "support/parallel.hpp"

namespace autopar {
namespace {

Status check_opset(const onnx::ModelProto& model, const std::string& path) {
  for (const auto& import : model.opset_import()) {
    if (import.domain() == kCollectiveDomain && import.version() != 1) {
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
// whole unless they are partial sums, are left out of a program that stands alone: readers that cut
// every entry with array tools would turn them into vectors.
std::string json_io(const Plan& plan, bool of_step) {
  std::set<std::string> seen;
  std::string text = "{";
  for (const auto* boundary : {&plan.inputs, &plan.outputs}) {
    for (const BoundaryValue& value : *boundary) {
      if (!of_step && boundary == &plan.inputs && value.shape.empty()) continue;
      if (!seen.insert(value.name).second) continue;
      text += (seen.size() == 1 ? "" : ", ") + json_text(value.name) +
              ": {\"shape\": " + json_list(value.shape) + ", " +
              json_tensor_map(value.spec, plan.mesh) + "}";
    }
  }
  return text + "}";
}

Status set_ranks(const Properties& properties, PlanFile& file, const GivenRanks* given) {
  AUTOPAR_TRY(place, stage_place_of(properties, file.path));
  const Mesh& mesh = file.plan.mesh;
  if (given != nullptr) {
    if (!place.ranks.empty() && place.ranks != given->ranks) {
      return input_error(file.path + ": metadata_props autopar.ranks: expected " +
                         json_list(given->ranks) + " as step.json says, found " +
                         json_list(place.ranks));
    }
    place.ranks = given->ranks;
    place.world_size = given->world_size;
  }
  file.metadata.stage = place.stage;
  file.metadata.ranks = place.ranks;
  file.ranks = std::move(place.ranks);
  const bool alone = file.ranks.empty();
  if (alone) {
    file.ranks.resize(static_cast<std::size_t>(mesh.size()));
    std::iota(file.ranks.begin(), file.ranks.end(), 0);
  }
  file.world_size = place.world_size > 0 ? place.world_size : mesh.size();
  if (!alone) file.metadata.world_size = file.world_size;
  const std::string where = file.path + ": metadata_props autopar.";
  if (alone && file.world_size != mesh.size()) {
    return input_error(where + "world_size: expected the product of the mesh " + to_text(mesh) +
                       ", found '" + std::to_string(file.world_size) + "'");
  }
  if (static_cast<std::int64_t>(file.ranks.size()) != mesh.size()) {
    return input_error(where + "ranks: expected one for each place of the mesh " + to_text(mesh) +
                       ", found " + std::to_string(file.ranks.size()));
  }
  return Ok{};
}

namespace {

// Ranks: in files for more each list of them stands once. With as many a list takes 1 KB of each
// collective, and those that read files by hand find it there (FORMATS: "more than 512 ranks").
constexpr std::int64_t kMostRanksInPlace = 512;

std::int64_t world_size_of(const Plan& plan, const PlanMetadata& metadata) {
  return metadata.ranks.empty() ? plan.mesh.size() : metadata.world_size;
}

// What plan.onnx holds, as ONNX's checker has seen it. Errors start with `where`.
Result<LeanModel> model_of_plan(const Plan& plan, const PlanMetadata& metadata,
                                const std::string& where) {
  Result<LeanModel> lean = lean_model_of(plan.program);
  if (!lean) return input_error(where + ": " + lean.error().message);
  onnx::ModelProto& model = lean->proto;
  const bool has_collectives = std::any_of(plan.program.ops.begin(), plan.program.ops.end(),
                                           [](const Op& op) { return is_collective(op); });
  if (!has_collectives) {  // the format promises the import
    auto* import = model.add_opset_import();
    import->set_domain(kCollectiveDomain);
    import->set_version(1);
  }
  const auto add = [&](const char* key, const std::string& value) {
    auto* entry = model.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("autopar.version", metadata.version);
  add("autopar.io", json_io(plan, metadata.of_step));
  add("autopar.world_size", std::to_string(world_size_of(plan, metadata)));
  if (!metadata.ranks.empty()) {
    if (metadata.stage >= 0) add("autopar.stage", std::to_string(metadata.stage));
    add("autopar.ranks", json_list(metadata.ranks));
  }
  add("autopar.mesh", json_mesh(plan.mesh, metadata.tier_names));
  add("autopar.model_sha256", metadata.model_sha256);
  add("autopar.strategy_sha256", metadata.strategy_sha256);
  if (!metadata.training.empty()) add(kTrainingKey, metadata.training);
  if (metadata.data) add(kDataKey, json_names(*metadata.data));
  if (!metadata.weights.empty()) {
    add("autopar.weights", metadata.weights);
    add("autopar.weights_io", json_weights(metadata.weights_io, plan.mesh));
  }
  if (metadata.fallback_functions) add_fallback_functions(model);
  AUTOPAR_RETURN_IF_ERROR(check_onnx(model, where));
  return lean;
}

Result<LeanModel> model_of_graph(const Graph& graph, const std::string& where) {
  Result<LeanModel> lean = lean_model_of(graph);
  if (!lean) return input_error(where + ": " + lean.error().message);
  AUTOPAR_RETURN_IF_ERROR(check_onnx(lean->proto, where));
  return lean;
}

}  // namespace

Result<std::vector<std::string>> write_plan(const Plan& plan, const PlanMetadata& metadata,
                                            const std::string& path,
                                            const std::string& model_folder) {
  UnfinishedFiles files;
  AUTOPAR_TRY(warnings, write_plan(plan, metadata, path, model_folder, files));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  return std::move(warnings);
}

Result<std::vector<std::string>> write_plan(const Plan& plan, const PlanMetadata& metadata,
                                            const std::string& path,
                                            const std::string& model_folder,
                                            UnfinishedFiles& files) {
  return write_plans({{plan, metadata, path}}, model_folder, 1, files);
}

Result<std::vector<std::string>> write_plans(const std::vector<PlanToWrite>& plans,
                                             const std::string& model_folder, int threads,
                                             UnfinishedFiles& files) {
  std::vector<std::optional<LeanModel>> models(plans.size());
  AUTOPAR_RETURN_IF_ERROR(try_in_parallel(threads, plans.size(), [&](std::size_t p) -> Status {
    AUTOPAR_TRY(model, model_of_plan(plans[p].plan, plans[p].metadata, plans[p].path));
    models[p].emplace(std::move(model));
    return Ok{};
  }));
  std::vector<std::string> warnings;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    if (!model_folder.empty()) {
      AUTOPAR_TRY(placed,
                  place_external_data(plans[p].plan.program, model_folder,
                                      folder_of(plans[p].path).string(), kLinkBytes, files));
      for (std::string& warning : placed) {
        if (std::find(warnings.begin(), warnings.end(), warning) != warnings.end()) continue;
        warnings.push_back(std::move(warning));
      }
    }
    if (world_size_of(plans[p].plan, plans[p].metadata) > kMostRanksInPlace) {
      refer_to_groups(*models[p]);
    }
    AUTOPAR_RETURN_IF_ERROR(write_model(*models[p], plans[p].path, files));
    models[p].reset();
  }
  return warnings;
}

Result<std::string> plan_bytes(const Plan& plan, const PlanMetadata& metadata,
                               const std::string& where) {
  AUTOPAR_TRY(model, model_of_plan(plan, metadata, where));
  return model_bytes(model, where);
}

Result<PlanFile> plan_of_model(LeanModel& lean, const std::string& path, const GivenRanks* given) {
  const Properties properties = properties_of(lean.proto);
  PlanFile file;
  file.path = path;
  if (const auto dialect = properties.find("autopar.dialect"); dialect != properties.end()) {
    return input_error(path + ": is a plan in the dialect " + dialect->second +
                       ", for another runtime; read the plan.onnx beside it");
  }
  AUTOPAR_TRY(version, property(properties, "autopar.version", path));
  AUTOPAR_RETURN_IF_ERROR(check_version(version, path));
  for (const char* key : {"autopar.io", "autopar.mesh", "autopar.world_size"}) {
    AUTOPAR_TRY(present, property(properties, key, path));
    static_cast<void>(present);
  }
  AUTOPAR_RETURN_IF_ERROR(check_opset(lean.proto, path));
  // Shapes of local ops too: what does not fit would fail in the middle of a run.
  AUTOPAR_RETURN_IF_ERROR(check_onnx(lean.proto, path));
  file.metadata.version = version;
  const auto text = [&](const char* key) {
    const auto found = properties.find(key);
    return found == properties.end() ? std::string() : found->second;
  };
  file.metadata.model_sha256 = text("autopar.model_sha256");
  file.metadata.strategy_sha256 = text("autopar.strategy_sha256");
  file.metadata.training = text(kTrainingKey);
  AUTOPAR_TRY(data, data_of(properties, path));
  file.metadata.data = std::move(data);
  file.metadata.fallback_functions = properties.count("autopar.fallback_functions") != 0;
  AUTOPAR_TRY(mesh, mesh_of(properties, path, file.metadata.tier_names));
  file.plan.mesh = mesh;
  AUTOPAR_RETURN_IF_ERROR(set_ranks(properties, file, given));
  AUTOPAR_TRY(program, graph_of(lean, path));
  file.plan.program = std::move(program);
  AUTOPAR_RETURN_IF_ERROR(read_boundary(properties, path, file.plan));
  AUTOPAR_RETURN_IF_ERROR(read_weights(properties, path, file.plan, file.metadata));
  const Status valid = file.metadata.ranks.empty() ? verify(file.plan)
                                                   : verify(file.plan, file.ranks, file.world_size);
  if (!valid) return input_error(path + ": " + valid.error().message);
  return file;
}

Result<PlanFile> read_plan(const std::string& path) {
  AUTOPAR_TRY(lean, read_model(path));
  return plan_of_model(lean, path);
}

Status write_graph_onnx(const Graph& graph, const std::string& path) {
  AUTOPAR_TRY(model, model_of_graph(graph, path));
  return write_model(model, path);
}

Result<std::string> graph_bytes(const Graph& graph, const std::string& where) {
  AUTOPAR_TRY(model, model_of_graph(graph, where));
  return model_bytes(model, where);
}

}  // namespace autopar
