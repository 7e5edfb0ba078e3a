#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "autopar/errors.hpp"
#include "autopar/files.hpp"
#include "autopar/sha256.hpp"
#include "io/export/dialects/dialect.hpp"
#include "io/export/external_data.hpp"
#include "io/export/model_proto.hpp"
#include "io/files/json.hpp"
#include "io/onnx_read.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

const std::vector<DialectRow>& dialect_rows() {
  static const std::vector<DialectRow> table = {
      {Dialect::kTrt, "trt", "TensorRT's DistCollective", say_in_trt, true},
      {Dialect::kOrt, "ort", "ONNX Runtime's com.microsoft", say_in_ort, false},
  };
  return table;
}

// More engines than anybody builds.
constexpr std::size_t kMostFiles = 1024;

// A plan read from its file has its weights before what ops make, one that was just made has not:
// both get the order in which nodes name them.
void order_by_nodes(onnx::GraphProto& graph) {
  std::unordered_map<std::string, std::size_t> places;
  const auto add = [&](const std::string& name) { places.emplace(name, places.size()); };
  for (const auto& node : graph.node()) {
    std::for_each(node.input().begin(), node.input().end(), add);
    std::for_each(node.output().begin(), node.output().end(), add);
  }
  for (const auto& output : graph.output()) add(output.name());
  const auto place = [&](const std::string& name) {
    const auto at = places.find(name);
    return std::pair(at == places.end() ? places.size() : at->second, name);
  };
  const auto earlier = [&](const auto* a, const auto* b) {
    return place(a->name()) < place(b->name());
  };
  auto& tensors = *graph.mutable_initializer();
  std::sort(tensors.pointer_begin(), tensors.pointer_end(), earlier);
  auto& infos = *graph.mutable_value_info();
  std::sort(infos.pointer_begin(), infos.pointer_end(), earlier);
}

struct RankFile {
  std::string name;
  std::vector<std::int64_t> ranks;
};

std::string manifest_of(const Plan& plan, const PlanMetadata& metadata, const char* dialect,
                        const std::vector<RankFile>& files) {
  std::string text = "{\"format\": \"autopar-dialect\", \"version\": 1, \"dialect\": ";
  text += json_text(dialect) + ",\n \"world_size\": " + std::to_string(plan.mesh.size());
  text += ", \"model_sha256\": " + json_text(metadata.model_sha256);
  text += ", \"strategy_sha256\": " + json_text(metadata.strategy_sha256) + ",\n \"files\": [";
  for (std::size_t i = 0; i < files.size(); ++i) {
    text += (i ? ",\n  " : "\n  ") + ("{\"file\": " + json_text(files[i].name)) +
            ", \"ranks\": " + json_list(files[i].ranks) + "}";
  }
  return text + "]}\n";
}

class DialectWriter {
 public:
  DialectWriter(const Plan& plan, const PlanMetadata& metadata, const DialectRow& dialect,
                std::string folder, UnfinishedFiles& unfinished)
      : plan_(plan),
        metadata_(metadata),
        dialect_(dialect),
        folder_(std::move(folder)),
        unfinished_(unfinished) {}

  Result<DialectFiles> run(const std::string& model_folder) {
    AUTOPAR_TRY(programs, RankPrograms::of(plan_, dialect_));
    if (programs.classes().size() > kMostFiles) {
      return input_error("the dialect " + std::string(dialect_.name) +
                         " takes a file for each of " + std::to_string(programs.classes().size()) +
                         " ranks, which is more than " + std::to_string(kMostFiles) +
                         "; try fewer devices");
    }
    const bool one = programs.classes().size() == 1;
    std::vector<std::string> warnings;
    for (const std::vector<std::int64_t>& ranks : programs.classes()) {
      AUTOPAR_TRY(program, programs.program(ranks[0]));
      if (files_.empty()) {  // nothing is written for what cannot be said
        AUTOPAR_TRY(placed, place_external_data(plan_.program, model_folder, folder_, kLinkBytes,
                                                unfinished_));
        warnings = std::move(placed);
      }
      AUTOPAR_RETURN_IF_ERROR(write(program, one, ranks));
    }
    if (!one && files_.size() == 1) rename_only();
    const std::string manifest = stem() + ".json";
    const std::vector<std::string> earlier = listed_in(path_of(manifest));
    AUTOPAR_RETURN_IF_ERROR(write_file(unfinished_, path_of(manifest),
                                       manifest_of(plan_, metadata_, dialect_.name, files_)));
    replace_those_of(earlier);
    DialectFiles result;
    for (const RankFile& file : files_) result.names.push_back(file.name);
    result.names.push_back(manifest);
    result.warnings = std::move(warnings);
    warn_of_order(result.warnings);
    return result;
  }

 private:
  std::string stem() const { return "plan." + std::string(dialect_.name); }
  std::string path_of(const std::string& name) const { return (fs::path(folder_) / name).string(); }

  // Programs that differ only in slices with equal contents give equal files: one is kept.
  Status write(const Graph& program, bool one, const std::vector<std::int64_t>& ranks) {
    const std::string name =
        stem() + (one ? std::string() : ".rank" + std::to_string(ranks[0])) + ".onnx";
    const std::string path = path_of(name);
    AUTOPAR_TRY(lean, lean_model_of(program));
    order_by_nodes(*lean.proto.mutable_graph());
    describe(lean.proto);
    register_dialect_schemas();
    AUTOPAR_RETURN_IF_ERROR(check_onnx(lean.proto, path));
    AUTOPAR_RETURN_IF_ERROR(write_model(lean, path, unfinished_));
    AUTOPAR_TRY(file, open_file(unfinished_.part_of(path)));
    const auto [same, added] = file_of_.try_emplace(sha256_hex(file.bytes()), files_.size());
    if (added) {
      files_.push_back({name, ranks});
      return Ok{};
    }
    unfinished_.take_back(path);
    std::vector<std::int64_t>& all = files_[same->second].ranks;
    all.insert(all.end(), ranks.begin(), ranks.end());
    std::sort(all.begin(), all.end());
    return Ok{};
  }

  // The files that a manifest from before names, which would be taken for this plan's.
  std::vector<std::string> listed_in(const std::string& manifest) const {
    std::vector<std::string> names;
    const auto text = read_file(manifest);
    if (!text) return names;
    const auto document = parse_json(*text, manifest);
    if (!document || !document->is_object() || !document->contains("files")) return names;
    for (const auto& file : (*document)["files"]) {
      if (!file.is_object() || !file.contains("file") || !file["file"].is_string()) continue;
      const std::string name = file["file"];
      const bool ours = name.rfind(stem() + ".", 0) == 0 && name.find('/') == std::string::npos;
      if (ours) names.push_back(name);
    }
    return names;
  }

  void replace_those_of(const std::vector<std::string>& earlier) const {
    for (const std::string& name : earlier) {
      const bool is_new = std::any_of(files_.begin(), files_.end(),
                                      [&](const RankFile& file) { return file.name == name; });
      if (!is_new) unfinished_.replace(path_of(name));
    }
  }

  void rename_only() {
    const std::string name = stem() + ".onnx";
    unfinished_.rename(path_of(files_[0].name), path_of(name));
    files_[0].name = name;
  }

  void describe(onnx::ModelProto& model) const {
    const auto add = [&](const char* key, const std::string& value) {
      auto* entry = model.add_metadata_props();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("autopar.version", metadata_.version);
    add("autopar.dialect", dialect_.name);
    add("autopar.io", json_io(plan_));
    add("autopar.world_size", std::to_string(plan_.mesh.size()));
    add("autopar.mesh", json_mesh(plan_.mesh, metadata_.tier_names));
    add("autopar.model_sha256", metadata_.model_sha256);
    add("autopar.strategy_sha256", metadata_.strategy_sha256);
  }

  void warn_of_order(std::vector<std::string>& warnings) const {
    const std::int64_t count = unordered_collectives(plan_.program);
    if (count == 0) return;
    warnings.push_back(std::to_string(count) +
                       " collectives do not depend by data on the one before, and " +
                       dialect_.runtime + " has no inputs that order them: in " + stem() +
                       " only their places in the file do, which are the same on every rank");
  }

  const Plan& plan_;
  const PlanMetadata& metadata_;
  const DialectRow& dialect_;
  const std::string folder_;
  UnfinishedFiles& unfinished_;
  std::vector<RankFile> files_;
  std::map<std::string, std::size_t> file_of_;  // by the hash of its bytes
};

}  // namespace

const DialectRow& row_of(Dialect dialect) {
  return dialect_rows()[static_cast<std::size_t>(dialect)];
}
const char* name_of(Dialect dialect) { return row_of(dialect).name; }

std::optional<Dialect> parse_dialect(const std::string& name) {
  for (const DialectRow& row : dialect_rows()) {
    if (name == row.name) return row.dialect;
  }
  return std::nullopt;
}

Result<DialectFiles> write_dialect(const Plan& plan, const PlanMetadata& metadata, Dialect dialect,
                                   const std::string& folder, const std::string& model_folder) {
  UnfinishedFiles files;
  AUTOPAR_TRY(written, write_dialect(plan, metadata, dialect, folder, model_folder, files));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  return std::move(written);
}

Result<DialectFiles> write_dialect(const Plan& plan, const PlanMetadata& metadata, Dialect dialect,
                                   const std::string& folder, const std::string& model_folder,
                                   UnfinishedFiles& files) {
  return DialectWriter(plan, metadata, row_of(dialect), folder, files).run(model_folder);
}

}  // namespace autopar
