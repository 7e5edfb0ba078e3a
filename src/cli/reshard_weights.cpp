// autopar reshard-weights.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "autopar/files.hpp"
#include "autopar/report.hpp"
#include "autopar/step_file.hpp"
#include "autopar/weights.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "json/parse.hpp"
#include "planning/logging.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

struct ReshardOptions {
  std::string from;
  std::string to;
  std::string folder;
  bool keep_missing = false;
};

// The other files of the plan's folder; the report says where the model is, seen from itself.
Status copy_strategy_and_report(const std::string& from, const std::string& to) {
  const fs::path strategy = fs::path(from) / "strategy.json",
                 report = fs::path(from) / "report.json";
  if (fs::exists(strategy)) {
    AUTOPAR_TRY(text, read_file(strategy.string()));
    AUTOPAR_RETURN_IF_ERROR(write_file_atomically((fs::path(to) / "strategy.json").string(), text));
  }
  if (!fs::exists(report)) return Ok{};
  AUTOPAR_TRY(text, read_file(report.string()));
  auto document = parse_ordered_json(text, report.string());
  const auto pointer = nlohmann::ordered_json::json_pointer("/model/path");
  const bool names_model = document && document->is_object() && document->contains(pointer) &&
                           (*document)[pointer].is_string();
  if (names_model) {
    auto& path = (*document)[pointer];
    const fs::path model = fs::absolute(fs::path(from) / path.get<std::string>());
    path = fs::proximate(model.lexically_normal(), fs::absolute(to)).string();
    text = document->dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }
  return write_file_atomically((fs::path(to) / "report.json").string(), text);
}

Result<int> reshard(ReshardOptions options, const CommonOptions& common) {
  end_on_interrupt();
  if (options.folder.empty()) options.folder = options.to;
  AUTOPAR_RETURN_IF_ERROR(check_folder_writable(options.folder));
  AUTOPAR_TRY(moved,
              reshard_weights(options.from, options.to, options.folder, options.keep_missing));
  std::error_code ignored;
  if (!fs::equivalent(options.folder, options.to, ignored)) {
    AUTOPAR_RETURN_IF_ERROR(copy_strategy_and_report(options.to, options.folder));
  }
  for (const std::string& warning : moved.warnings) logging::warn("warning: {}", warning);
  for (const std::string& file : moved.files) logging::debug("wrote {}", file);
  if (common.json) {
    std::cout << nlohmann::ordered_json({{"format", "autopar-reshard-weights"},
                                         {"version", 1},
                                         {"weights", moved.weights},
                                         {"bytes", moved.bytes},
                                         {"files", moved.files},
                                         {"warnings", moved.warnings}})
                     .dump(1)
              << "\n";
  } else if (!common.quiet) {
    std::cout << moved.weights << " weights, " << format_bytes(static_cast<double>(moved.bytes))
              << "\nwrote " << options.folder
              << (is_step_folder(options.to) ? "/: a folder per rank with its "
                                             : "/: plan.onnx, a folder per rank with its ")
              << kWeightsFile << "\n";
  }
  return 0;
}

}  // namespace

Run add_reshard_weights(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<ReshardOptions>();
  app.add_option("--from", options->from,
                 "folder of a plan or step with its weights, or a .safetensors, .onnx or .npz file")
      ->type_name("PATH")
      ->group(group::kReading)
      ->required();
  app.add_option("--to", options->to, "folder of the plan or step that the weights are for")
      ->type_name("DIR")
      ->group(group::kReading)
      ->required();
  app.add_option("-o,--output", options->folder,
                 "folder for the plan and its ranks (default: that of --to)")
      ->type_name("DIR")
      ->group(group::kOutput);
  app.add_flag("--keep-missing", options->keep_missing,
               "weights that --from does not have stay as --to has them")
      ->group(group::kReading);
  return [options, &common] { return reshard(*options, common); };
}

}  // namespace autopar::cli
