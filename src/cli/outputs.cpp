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

std::string strategy_text_of(const SearchRequest& request, const SearchOutcome& outcome,
                             const Inputs& inputs, const std::string& model_name) {
  StrategyOrigin origin;
  origin.model_name = model_name;
  origin.model_sha256 = inputs.model.sha256;
  origin.cluster_name = inputs.cluster.name;
  origin.cluster_sha256 = inputs.cluster_sha256;
  origin.searcher = outcome.searcher;
  origin.cost = {outcome.cost.total(), outcome.lower_bound, outcome.gap(),
                 outcome.cost.memory.total};
  return strategy_to_json(request.graph, request.rules, outcome.strategy, request.cluster, origin);
}

// The model's place as seen from the output folder, for `autopar run`.
std::string with_model_path(const std::string& report, const std::string& model,
                            const std::string& folder) {
  auto document = nlohmann::ordered_json::parse(report);
  document["model"]["path"] = fs::proximate(fs::absolute(model), fs::absolute(folder)).string();
  return document.dump(1) + "\n";
}

}  // namespace

Status write_outputs(const SearchRequest& request, const SearchOutcome& outcome,
                     const Inputs& inputs, const PlanOptions& options, const CommonOptions& common,
                     const std::string& strategy_text) {
  const std::string folder = output_folder(options);
  const std::string model_name = fs::path(options.model).filename().string();
  AUTOPAR_TRY(plan, partition(request.graph, request.rules, outcome.strategy, request.cluster));
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    return input_error(folder + ": cannot make this folder: " + failed.message() +
                       "; try -o with another one");
  }
  const std::string strategy = strategy_text.empty()
                                   ? strategy_text_of(request, outcome, inputs, model_name)
                                   : strategy_text;
  PlanMetadata metadata;
  metadata.version = AUTOPAR_VERSION;
  metadata.model_sha256 = inputs.model.sha256;
  metadata.strategy_sha256 = sha256_hex(strategy);
  for (const Tier& tier : request.cluster.tiers) metadata.tier_names.push_back(tier.name);
  const std::string model_folder = fs::path(options.model).parent_path().string();
  AUTOPAR_TRY(plan_warnings, write_plan(plan, metadata, (fs::path(folder) / "plan.onnx").string(),
                                        model_folder.empty() ? "." : model_folder));
  AUTOPAR_RETURN_IF_ERROR(
      write_file_atomically((fs::path(folder) / "strategy.json").string(), strategy));

  Report report = build_report(request, outcome);
  report.model = model_name;
  report.model_sha256 = inputs.model.sha256;
  report.baselines = run_baselines(request, outcome);
  report.warnings = inputs.warnings;
  report.warnings.insert(report.warnings.end(), plan_warnings.begin(), plan_warnings.end());
  const std::string text = with_model_path(to_json(report), options.model, folder);
  AUTOPAR_RETURN_IF_ERROR(write_file_atomically((fs::path(folder) / "report.json").string(), text));
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
