// autopar merge.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/report.hpp"
#include "autopar/step_file.hpp"
#include "autopar/unfinished.hpp"
#include "autopar/weights.hpp"
#include "cli/command.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/interrupt.hpp"
#include "cli/model_path.hpp"
#include "planning/logging.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

constexpr const char* kStepHasNoModel =
    ": holds a step, which does not say which model it was made of; --model FILE is the model that "
    "the weights are put in";

struct MergeOptions {
  std::string folder;
  std::string file;
  std::string model;
};

// That of a training step is not there: the step is.
Result<std::string> model_of_step(const MergeOptions& options) {
  if (!options.model.empty()) return options.model;
  AUTOPAR_TRY(step, read_step(options.folder));
  const std::string program = (fs::path(options.folder) / step.programs.front().file).string();
  AUTOPAR_TRY(files, read_step_programs(options.folder, step));
  const PlanMetadata& metadata = files.front().metadata;
  if (!metadata.data) return usage_error(options.folder + kStepHasNoModel);
  return model_of_plan("", program, metadata.model_sha256);
}

Result<int> merge(const MergeOptions& options, const CommonOptions& common) {
  end_on_interrupt();
  const std::string extension = fs::path(options.file).extension().string();
  if (extension != ".safetensors" && extension != ".onnx") {
    return usage_error("-o " + options.file + ": expected a .safetensors or an .onnx file");
  }
  AUTOPAR_RETURN_IF_ERROR(check_writable(options.file));
  std::string model;
  if (extension == ".onnx" && is_step_folder(options.folder)) {
    AUTOPAR_TRY(found, model_of_step(options));
    model = std::move(found);
  } else if (extension == ".onnx") {
    const std::string plan = (fs::path(options.folder) / "plan.onnx").string();
    AUTOPAR_TRY(file, read_plan(plan));
    const bool is_step = !file.metadata.training.empty();
    if (is_step && options.model.empty()) return usage_error(options.folder + kStepHasNoModel);
    if (is_step) {
      model = options.model;
    } else {
      AUTOPAR_TRY(found, model_of_plan(options.model, plan, file.metadata.model_sha256));
      model = found;
    }
  } else if (!options.model.empty()) {
    return usage_error("--model goes with an .onnx file; a .safetensors file needs no model");
  }
  keep_plan_in(options.folder);
  AUTOPAR_TRY(moved, merge_weights(options.folder, options.file, model));
  for (const std::string& warning : moved.warnings) logging::warn("warning: {}", warning);
  for (const std::string& file : moved.files) logging::debug("wrote {}", file);
  if (common.json) {
    std::cout << nlohmann::ordered_json({{"format", "autopar-merge"},
                                         {"version", 1},
                                         {"weights", moved.weights},
                                         {"bytes", moved.bytes},
                                         {"files", moved.files},
                                         {"warnings", moved.warnings}})
                     .dump(1)
              << "\n";
  } else if (!common.quiet) {
    std::cout << moved.weights << " weights, " << format_bytes(static_cast<double>(moved.bytes));
    for (const std::string& file : moved.files) std::cout << "\nwrote " << file;
    std::cout << "\n";
  }
  return 0;
}

}  // namespace

Run add_merge(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<MergeOptions>();
  app.add_option("DIR", options->folder, "folder of a plan with sharded weights")->required();
  app.add_option("-o,--output", options->file,
                 ".safetensors: the whole weights; .onnx: the model, the weights beside it")
      ->type_name("FILE")
      ->group(group::kOutput)
      ->required();
  app.add_option("--model", options->model,
                 "the model to put them in (default: as the report says)")
      ->type_name("FILE")
      ->group(group::kReading);
  return [options, &common] { return merge(*options, common); };
}

}  // namespace autopar::cli
