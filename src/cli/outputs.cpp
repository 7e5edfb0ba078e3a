#include "cli/outputs.hpp"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/sha256.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

std::string output_folder(const PlanOptions& options) {
  if (!options.output_folder.empty()) return options.output_folder;
  return fs::path(options.model).stem().string() + ".autopar";
}

namespace {

// In seconds, whatever the search priced plans with.
Result<StrategyFile::Cost> cost_of(const SearchRequest& request, const SearchOutcome& outcome) {
  if (request.cost_model == "roofline") {
    return StrategyFile::Cost{outcome.cost.total(), outcome.lower_bound, outcome.gap(),
                              outcome.cost.memory.total};
  }
  RooflineModel model(request.cluster, outcome.strategy.mesh);
  AUTOPAR_TRY(cost,
              evaluate(request.graph, request.rules, outcome.strategy, model, request.updates));
  return StrategyFile::Cost{cost.total(), 0, 1, cost.memory.total};
}

Result<std::string> strategy_text_of(const SearchRequest& request, const SearchOutcome& outcome,
                                     const Inputs& inputs, const std::string& model_name) {
  StrategyOrigin origin;
  origin.model_name = model_name;
  origin.model_sha256 = inputs.model.sha256;
  origin.cluster_name = inputs.cluster.name;
  origin.cluster_sha256 = inputs.cluster_sha256;
  origin.searcher = outcome.searcher;
  AUTOPAR_TRY(cost, cost_of(request, outcome));
  origin.cost = cost;
  return strategy_to_json(request.graph, request.rules, outcome.strategy, request.cluster, origin);
}

// The model's place as seen from the output folder, for `autopar run`.
std::string with_model_path(const std::string& report, const std::string& model,
                            const std::string& folder) {
  auto document = nlohmann::ordered_json::parse(report);
  document["model"]["path"] = fs::proximate(fs::absolute(model), fs::absolute(folder)).string();
  return document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The folder and its files stay together: where one of them cannot be written, those written
// before it go again, and so does the folder if it was made for them.
class OutputFolder {
 public:
  explicit OutputFolder(std::string path) : path_(std::move(path)) {}
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder() {
    std::error_code ignored;
    for (const std::string& file : files_) fs::remove(file, ignored);
    for (const std::string& folder : made_) fs::remove(folder, ignored);
  }

  Status make() {
    std::error_code failed;
    for (fs::path p = path_; !p.empty() && !fs::exists(p, failed); p = p.parent_path()) {
      made_.push_back(p.string());
    }
    fs::create_directories(path_, failed);
    if (!failed && fs::is_directory(path_, failed)) return Ok{};
    return input_error(path_ + ": cannot make this folder: " +
                       (failed ? failed.message() : "it is a file") + "; try -o with another one");
  }
  std::string add(const char* name) {
    files_.push_back((fs::path(path_) / name).string());
    return files_.back();
  }
  void keep() {
    files_.clear();
    made_.clear();
  }

 private:
  std::string path_;
  std::vector<std::string> files_;
  std::vector<std::string> made_;  // innermost first
};

}  // namespace

Status write_outputs(const SearchRequest& request, const SearchOutcome& outcome,
                     const Inputs& inputs, const PlanOptions& options,
                     const CommonOptions& common) {
  const std::string folder = output_folder(options);
  const std::string model_name = fs::path(options.model).filename().string();
  AUTOPAR_TRY(plan, partition(request.graph, request.rules, outcome.strategy, request.cluster));
  AUTOPAR_TRY(strategy, strategy_text_of(request, outcome, inputs, model_name));
  PlanMetadata metadata;
  metadata.version = AUTOPAR_VERSION;
  metadata.model_sha256 = inputs.model.sha256;
  metadata.strategy_sha256 = sha256_hex(strategy);
  for (const Tier& tier : request.cluster.tiers) metadata.tier_names.push_back(tier.name);
  const std::string model_folder = fs::path(options.model).parent_path().string();
  Report report = build_report(request, outcome);
  report.model = model_name;
  report.model_sha256 = inputs.model.sha256;
  report.baselines = run_baselines(request, outcome);
  report.warnings = inputs.warnings;

  OutputFolder files(folder);
  AUTOPAR_RETURN_IF_ERROR(files.make());
  AUTOPAR_TRY(plan_warnings, write_plan(plan, metadata, files.add("plan.onnx"),
                                        model_folder.empty() ? "." : model_folder));
  AUTOPAR_RETURN_IF_ERROR(write_file_atomically(files.add("strategy.json"), strategy));
  report.warnings.insert(report.warnings.end(), plan_warnings.begin(), plan_warnings.end());
  const std::string text = with_model_path(to_json(report), options.model, folder);
  AUTOPAR_RETURN_IF_ERROR(write_file_atomically(files.add("report.json"), text));
  files.keep();
  for (const std::string& warning : report.warnings) spdlog::warn("warning: {}", warning);
  if (common.json) {
    std::cout << text;
  } else if (!common.quiet) {
    report.warnings.clear();
    std::cout << to_table(report, options.rows) << "\nwrote " << folder
              << "/: strategy.json, plan.onnx, report.json\n";
  }
  return Ok{};
}

}  // namespace autopar::cli
