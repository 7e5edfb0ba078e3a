#include "cli/earlier_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "autopar/errors.hpp"
#include "autopar/files.hpp"
#include "autopar/unfinished.hpp"
#include "cli/show_program.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

// What a file of that name has when a search has written it.
struct Owned {
  const char* name;
  const char* format;
  const char* origin;  // a field that nobody writes by hand
};
constexpr char kStepFile[] = "step.json";
constexpr Owned kDocuments[] = {{"report.json", "autopar-report", "/model/sha256"},
                                {"strategy.json", "autopar-strategy", "/model/sha256"}};

Error not_ours(const std::string& path) {
  return input_error(path +
                     ": is there and was not written by autopar, so it is not replaced; move it "
                     "away, or try -o with another place");
}

// What it says of itself, without its ops and tensors; of a text that is no JSON: discarded.
nlohmann::json head_of(const std::string& text) {
  using Event = nlohmann::json::parse_event_t;
  const auto is_head = [](int depth, Event event, const nlohmann::json& key) {
    const bool is_list = event == Event::key && depth == 1 && (key == "ops" || key == "tensors");
    return !is_list;
  };
  return nlohmann::json::parse(text, is_head, false);
}

bool has_format(const nlohmann::json& document, const std::string& format) {
  return document.is_object() && document.value("format", nlohmann::json()) == format;
}

// Of files that only come with steps: whether one is of this program, as it says itself.
bool is_of_step(const fs::path& path) {
  if (path.extension() != ".onnx") return false;
  if (kind_of_file(path.string()) == FileKind::kPlan) return true;
  const auto is_step = is_training_step(path.string());
  return is_step && *is_step;
}

// What a search of a step may replace beside the files of every plan. Where a plan lies there,
// programs and schedules are its own.
Status check_step_files(const fs::path& folder, bool has_plan) {
  static const std::regex names(
      R"(train\.onnx|train\.[A-Z]+\.onnx|plan\.c\d+\.[A-Z]+\.onnx|schedule\.csv)");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(ignored) || !std::regex_match(name, names)) continue;
    const bool is_ours = has_plan && name != kTrainingFile;
    if (!is_ours && !is_of_step(entry.path())) return not_ours(entry.path().string());
  }
  return Ok{};
}

std::string text_at(const nlohmann::json& document, const char* pointer) {
  const nlohmann::json::json_pointer at(pointer);
  return document.contains(at) && document[at].is_string() ? document[at].get<std::string>() : "";
}

// Names of what a plan may have in its folder.
bool is_of_plan(const std::string& name) {
  static const std::regex names(
      R"(report\.json|strategy\.json|step\.json|rank\d{5}|plan\.onnx|plan\.c\d+\.[A-Z]+\.onnx|)"
      R"(plan\.stage\d+\.onnx|train\.([A-Z]+\.)?onnx|schedule\.csv|plan\.(trt|ort)(\.rank\d+)?\.onnx|)"
      R"(plan\.(trt|ort)\.json|.*\.annotated\.onnx)");
  return std::regex_match(name, names);
}

// What is written beside the plan is none of the plan's own files, nor the same one twice.
Status check_apart(const PlanOptions& options) {
  std::error_code ignored;
  const auto place = [&](const fs::path& path) {
    return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  };
  const fs::path folder = place(output_folder(options));
  std::set<fs::path> taken;
  for (const std::string& file : {options.timeline_file, options.dump_file}) {
    if (file.empty()) continue;
    const fs::path path = place(file);
    const bool is_own = path.parent_path() == folder && is_of_plan(path.filename().string());
    if (!is_own && taken.insert(path).second) continue;
    return input_error(file +
                       ": is written already, as a file of the plan or by another option; try "
                       "another place");
  }
  return Ok{};
}

}  // namespace

bool is_strategy_file(const std::string& path) {
  const auto text = read_file(path);
  return text && has_format(head_of(*text), "autopar-strategy");
}

void keep_plan_in(const std::string& folder) {
  std::error_code failed;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, failed), none;
       !failed && at != none; at.increment(failed)) {
    if (!is_of_plan(at->path().filename().string())) continue;
    keep_from_replacing(at->path().string());
    std::error_code ignored;
    for (const auto& inside : fs::directory_iterator(at->path(), ignored)) {
      keep_from_replacing(inside.path().string());
    }
  }
}

Status check_places(const PlanOptions& options) {
  const std::string folder = output_folder(options);
  Status writable = check_folder_writable(folder);
  for (const Owned& document : kDocuments) {
    if (writable) writable = check_writable((fs::path(folder) / document.name).string());
  }
  if (!writable) return input_error(writable.error().message + "; try -o with another place");
  for (const std::string& file : {options.timeline_file, options.dump_file}) {
    AUTOPAR_RETURN_IF_ERROR(check_writable(file));
  }
  return check_apart(options);
}

Status check_reads_stay(const PlanOptions& options) {
  std::error_code ignored;
  for (const std::string name : {"plan.onnx", kTrainingFile}) {
    const fs::path path = fs::path(output_folder(options)) / name;
    const bool is_written = options.train || name != kTrainingFile;
    if (!is_written || !fs::equivalent(path, options.model, ignored)) continue;
    return input_error(path.string() +
                       ": is the model, so it is not replaced; try -o with another place");
  }
  // What of these is of the plan that is replaced may go with it, and otherwise stays.
  for (const std::string& file : {options.timeline_file, options.dump_file}) {
    const bool is_read = fs::equivalent(file, options.pin_file, ignored) ||
                         fs::equivalent(file, options.strategy_file, ignored) ||
                         fs::equivalent(file, options.schedule, ignored);
    if (!is_read) continue;
    return input_error(file + ": is what is read, so it is not replaced; try another place for " +
                       "what is written");
  }
  return Ok{};
}

Result<std::string> earlier_plan(const PlanOptions& options) {
  const std::string folder = output_folder(options);
  std::string described;
  std::size_t owned = 0;
  for (const Owned& document : kDocuments) {
    const fs::path path = fs::path(folder) / document.name;
    if (!fs::is_regular_file(path)) continue;
    AUTOPAR_TRY(text, read_file(path.string()));
    const auto json = head_of(text);
    const bool ours = has_format(json, document.format) && !text_at(json, document.origin).empty();
    if (!ours) return not_ours(path.string());
    ++owned;
    const std::string model = text_at(json, "/model/name");
    const std::string cluster = text_at(json, "/cluster/name");
    if (!model.empty()) {
      described = "the plan of '" + model + "'" + (cluster.empty() ? "" : " for '" + cluster + "'");
    }
  }
  if (const fs::path step = fs::path(folder) / kStepFile; fs::is_regular_file(step)) {
    AUTOPAR_TRY(text, read_file(step.string()));
    const auto json = head_of(text);
    if (owned == 0 || !has_format(json, "autopar-step")) return not_ours(step.string());
  }
  const bool has_passes = options.train || options.runs_in_passes();
  if (has_passes) AUTOPAR_RETURN_IF_ERROR(check_step_files(folder, owned > 0));
  const fs::path plan = fs::path(folder) / "plan.onnx";
  if (!fs::is_regular_file(plan)) return owned > 0 ? described : "";
  // Both documents beside it show whose it is; else the file must be read.
  if (owned < std::size(kDocuments) && kind_of_file(plan.string()) != FileKind::kPlan) {
    return not_ours(plan.string());
  }
  return described.empty() ? "a plan" : described;
}

std::vector<std::string> left_of_earlier_plan(const std::string& folder,
                                              const std::vector<std::string>& written,
                                              const std::string& model) {
  std::vector<std::string> left;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!is_of_plan(name) || fs::equivalent(entry.path(), model, ignored)) continue;
    const bool is_new = std::any_of(written.begin(), written.end(), [&](const std::string& path) {
      const fs::path relative = fs::path(path).lexically_relative(folder);
      return !relative.empty() && relative.begin()->string() == name;
    });
    if (!is_new) left.push_back(name);
  }
  std::sort(left.begin(), left.end());
  return left;
}

Status remove_earlier_step(const std::string& folder) {
  std::error_code error;
  fs::remove(fs::path(folder) / kStepFile, error);
  if (!error) return Ok{};
  return resource_error(
      folder + ": step.json of an earlier plan is there, and cannot be removed (" +
      error.message() + "): what reads the folder takes that plan for this one; remove the file");
}

Result<std::string> earlier_cluster(const std::string& path) {
  if (!fs::is_regular_file(path)) return std::string();
  AUTOPAR_TRY(text, read_file(path));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!has_format(json, "autopar-cluster")) return not_ours(path);
  const std::string name = text_at(json, "/name");
  return name.empty() ? "a cluster" : "the cluster '" + name + "'";
}

}  // namespace autopar::cli
