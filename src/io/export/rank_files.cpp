// The files that ranks run, as a list says it: what write_dialect makes of a plan, or somebody
// else.
//
//   {"format": "autopar-dialect", "version": 1, "world_size": 4,
//    "files": [{"file": "a.onnx", "ranks": [0, 2]}, {"file": "b.onnx", "ranks": [1, 3]}]}
//
// Where the files themselves do not say it, "mesh" and "io" say how inputs and outputs lie, in the
// form of metadata_props autopar.mesh and autopar.io.
#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "autopar/files.hpp"
#include "io/dialects/dialects.hpp"
#include "io/export/programs.hpp"
#include "io/files/json.hpp"
#include "io/import/external_locations.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDialectFormat = "autopar-dialect";

struct RankFiles {
  std::int64_t world_size = 0;
  std::vector<RankModel> models;  // without their files
  std::map<std::string, std::string> properties;
};

Result<RankFiles> parse_list(const Json& json, const nlohmann::json& document) {
  AUTOPAR_RETURN_IF_ERROR(check_format(json, kDialectFormat, 1));
  RankFiles list;
  AUTOPAR_TRY(size_field, json.at("world_size"));
  AUTOPAR_TRY(world_size, size_field.integer());
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
  if (world_size < 1 || world_size > kMostRanks) {
    return size_field.expected("a number of ranks from 1 to " + std::to_string(kMostRanks));
  }
  list.world_size = world_size;
  AUTOPAR_TRY(files_field, json.at("files"));
  AUTOPAR_TRY(files, files_field.items());
  std::set<std::int64_t> seen;
  for (const Json& entry : files) {
    AUTOPAR_TRY(name_field, entry.at("file"));
    AUTOPAR_TRY(name, name_field.text());
    if (name.empty() || name.find('/') != std::string::npos) {
      return name_field.expected("the name of a file beside this one");
    }
    AUTOPAR_TRY(ranks_field, entry.at("ranks"));
    AUTOPAR_TRY(ranks, ranks_field.integers());
    for (std::int64_t rank : ranks) {
      const bool good = rank >= 0 && rank < world_size && seen.insert(rank).second;
      if (!good) return ranks_field.expected("ranks of the world that run no other file");
    }
    if (ranks.empty()) return ranks_field.expected("at least one rank");
    list.models.push_back({name, ranks, {}});
  }
  if (static_cast<std::int64_t>(seen.size()) != world_size) {
    return files_field.expected("a file for each of " + std::to_string(world_size) +
                                " ranks (there is one for " + std::to_string(seen.size()) + ")");
  }
  for (const char* key : {"mesh", "io"}) {
    if (document.contains(key))
      list.properties[std::string("autopar.") + key] = document[key].dump();
  }
  return list;
}

Result<RankFiles> read_list(const std::string& path) {
  AUTOPAR_TRY(text, read_file(path));
  AUTOPAR_TRY(document, parse_json(text, path));
  return parse_list(Json(document, path, ""), document);
}

void set_property(onnx::ModelProto& model, const std::string& key, const std::string& value) {
  for (auto& entry : *model.mutable_metadata_props()) {
    if (entry.key() != key) continue;
    entry.set_value(value);
    return;
  }
  auto* entry = model.add_metadata_props();
  entry->set_key(key);
  entry->set_value(value);
}

}  // namespace

Result<PlanFile> read_rank_files(const std::string& path,
                                 const std::map<std::string, std::int64_t>& dims) {
  AUTOPAR_TRY(list, read_list(path));
  const fs::path folder = fs::path(path).parent_path();
  std::string dialect;
  for (RankModel& model : list.models) {
    const std::string name = (folder / model.name).string();
    const auto in_file = [&](const Error& error) {
      return input_error(name + ": " + error.message);
    };
    const auto mapped = open_file(name);
    if (!mapped) return in_file(mapped.error());
    auto file = read_onnx(mapped->bytes());
    if (!file) return in_file(file.error());
    const Status located = check_external_locations(file->model, name);
    if (!located) return in_file(located.error());
    // Each file counts its own lists.
    if (const Status listed = list_groups_in_place(file->model); !listed) {
      return in_file(listed.error());
    }
    const auto words = translate_collectives(file->model, list.world_size);
    if (!words) return in_file(words.error());
    if (!words->empty()) dialect = *words;
    model.name = name;
    model.file = std::move(*file);
  }
  AUTOPAR_TRY(merged, merge_ranks(std::move(list.models), list.world_size, folder.string()));
  set_property(merged.model, "autopar.world_size", std::to_string(list.world_size));
  for (const auto& [key, value] : list.properties) set_property(merged.model, key, value);
  return by_hand_of(std::move(merged), path, dialect, dims);
}

Status check_is_for_all_ranks(const std::string& path, const Properties& properties) {
  const auto dialect = properties.find("autopar.dialect");
  if (dialect == properties.end()) return Ok{};
  const fs::path file(path);
  const std::string stem = "plan." + dialect->second;
  const fs::path manifest = file.parent_path() / (stem + ".json");
  if (!fs::exists(manifest)) {
    if (file.filename().string().rfind(stem + ".rank", 0) != 0) return Ok{};
    return input_error(path + ": is the file of some ranks, in the dialect " + dialect->second +
                       "; " + manifest.string() + ", which lists the files of all, is not there");
  }
  AUTOPAR_TRY(list, read_list(manifest.string()));
  for (const RankModel& model : list.models) {
    const auto ranks = static_cast<std::int64_t>(model.ranks.size());
    if (model.name != file.filename().string() || ranks == list.world_size) continue;
    return input_error(path + ": is the file of " + std::to_string(ranks) + " of " +
                       std::to_string(list.world_size) + " ranks, in the dialect " +
                       dialect->second + "; give " + manifest.string() +
                       ", which lists the files of all");
  }
  return Ok{};
}

}  // namespace autopar
