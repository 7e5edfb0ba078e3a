// autopar export: a plan that is there, in the words of another runtime.
#include "autopar/export.hpp"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/show_program.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

struct ExportOptions {
  std::string plan;
  std::string dialect;
  std::string output_folder;
};

Result<int> run(const ExportOptions& options, const CommonOptions& common) {
  end_on_interrupt();
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  AUTOPAR_TRY(programs, read_programs(options.plan, dims));
  if (programs.size() > 1) {
    return input_error(options.plan + ": has " + std::to_string(programs.size()) +
                       " programs, which send each other messages; other runtimes' dialects have "
                       "no words for these; try a plan without stages");
  }
  tell_of_programs(programs);
  const PlanFile& file = programs[0];
  const fs::path own =
      fs::path(file.path).has_parent_path() ? fs::path(file.path).parent_path() : fs::path(".");
  const fs::path folder = options.output_folder.empty() ? own : fs::path(options.output_folder);
  AUTOPAR_TRY(written, write_dialect(file.plan, file.metadata, *parse_dialect(options.dialect),
                                     folder.string(), own.string()));
  std::vector<std::string> warnings = file.warnings;
  warnings.insert(warnings.end(), written.warnings.begin(), written.warnings.end());
  for (const std::string& warning : warnings) spdlog::warn("warning: {}", warning);
  if (common.json) {
    const nlohmann::ordered_json j = {{"format", "autopar-export"}, {"version", 1},
                                      {"dialect", options.dialect}, {"folder", folder.string()},
                                      {"files", written.names},     {"warnings", warnings}};
    std::cout << j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return 0;
  }
  if (common.quiet) return 0;
  std::cout << "wrote " << folder.string() << "/:";
  for (const std::string& name : written.names) {
    std::cout << (name == written.names.front() ? " " : ", ") << name;
  }
  std::cout << "\n";
  return 0;
}

}  // namespace

Run add_export(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<ExportOptions>();
  app.add_option(
         "PLAN", options->plan,
         "a plan or a program with collectives: folder, plan.onnx, model, or list of ranks' files")
      ->required();
  app.add_option("--dialect", options->dialect,
                 "trt (TensorRT's DistCollective), ort (com.microsoft, only among all ranks)")
      ->required()
      ->group(group::kOutput)
      ->check(CLI::IsMember({"trt", "ort"}));
  app.add_option("-o,--output", options->output_folder, "folder (default: that of the plan)")
      ->type_name("DIR")
      ->group(group::kOutput);
  return [options, &common] { return run(*options, common); };
}

}  // namespace autopar::cli
