// autopar grad.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/import.hpp"
#include "cli/training_options.hpp"
#include "planning/inputs.hpp"
#include "planning/logging.hpp"

namespace autopar::cli {

namespace {

struct GradOptions {
  std::string model;
  std::string output;
  TrainingChoice training;
};

Result<int> run(const GradOptions& options, const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(check_writable(options.output));
  AUTOPAR_TRY(step, make_training_step(options.model, options.training, common));
  const std::string folder = std::filesystem::path(options.model).parent_path().string();
  AUTOPAR_TRY(warnings, write_training_step(step, options.output, folder.empty() ? "." : folder));
  for (const std::string& warning : warnings) logging::warn("warning: {}", warning);
  if (common.json) {
    nlohmann::ordered_json j = {{"format", "autopar-grad"},
                                {"version", 1},
                                {"file", options.output},
                                {"ops", step.graph.ops.size()}};
    const auto facts = nlohmann::ordered_json::parse(training_json(step));
    for (const char* key :
         {"loss", "data", "parameters", "states", "statistics", "frozen", "unreached"}) {
      j[key] = facts.at(key);
    }
    std::cout << j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else if (!common.quiet) {
    std::cout << "wrote " << options.output << "\n";
  }
  return 0;
}

}  // namespace

Run add_grad(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<GradOptions>();
  app.option_defaults()->group(group::kReading);
  app.add_option("MODEL", options->model, "model.onnx or graph.json, a forward graph")->required();
  add_training_options(app, options->training);
  app.add_option("-o,--output", options->output, "the training step, an ONNX file")
      ->required()
      ->type_name("FILE")
      ->group(group::kOutput);
  return [options, &common, &app]() -> Result<int> {
    AUTOPAR_RETURN_IF_ERROR(settle_training_options(app, options->training));
    return run(*options, common);
  };
}

}  // namespace autopar::cli
