// autopar export: a plan that is there, in the words of another runtime or training program.
#include "autopar/export.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/export_as.hpp"
#include "cli/interrupt.hpp"
#include "cli/show_program.hpp"
#include "planning/logging.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

struct ExportOptions {
  std::string plan;
  std::string dialect, as;
  std::string output;
  PricedFrom from;
};

Result<int> write_in_dialect(const ExportOptions& options, const CommonOptions& common) {
  end_on_interrupt();
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  AUTOPAR_TRY(programs, read_programs(options.plan, dims));
  if (programs.size() > 1) {
    return input_error(options.plan + ": has " + std::to_string(programs.size()) +
                       " programs, which send each other messages; other runtimes' dialects have "
                       "no words for these; try a plan without stages");
  }
  const PlanFile& file = programs[0];
  keep_from_replacing(file.path);
  if (file.metadata.sharded()) {
    return usage_error(
        options.plan +
        ": has --weights sharded; files of other runtimes have the whole weights, so "
        "plan with --weights referenced");
  }
  tell_of_programs(programs);
  const fs::path own =
      fs::path(file.path).has_parent_path() ? fs::path(file.path).parent_path() : fs::path(".");
  const fs::path folder = options.output.empty() ? own : fs::path(options.output);
  AUTOPAR_RETURN_IF_ERROR(check_folder_writable(folder.string()));
  AUTOPAR_TRY(written, write_dialect(file.plan, file.metadata, *parse_dialect(options.dialect),
                                     folder.string(), own.string()));
  std::vector<std::string> warnings = file.warnings;
  warnings.insert(warnings.end(), written.warnings.begin(), written.warnings.end());
  for (const std::string& warning : warnings) logging::warn("warning: {}", warning);
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

Result<int> run(const CLI::App& app, const ExportOptions& options, const CommonOptions& common) {
  if (options.dialect.empty() == options.as.empty()) {
    return usage_error("export takes one of --dialect and --as");
  }
  if (options.as.empty()) {
    AUTOPAR_RETURN_IF_ERROR(refuse_options(app, {"--model", "--cluster", "--profile"},
                                           "goes with --as, which prices the nearest template"));
    return write_in_dialect(options, common);
  }
  return export_as({options.plan, options.as, options.output, options.from}, common);
}

}  // namespace

Run add_export(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<ExportOptions>();
  app.add_option(
         "PLAN", options->plan,
         "a plan or a program with collectives: folder, plan.onnx, model, or list of ranks' files; "
         "of --as also strategy.json")
      ->required();
  app.option_defaults()->group(group::kReading);
  app.add_option("--model", options->from.model,
                 "of --as: the model that the plan is of, to price the nearest template\n"
                 "Not needed for a step of one pass, whose train.onnx lies beside the plan.")
      ->type_name("FILE");
  app.add_option("--cluster", options->from.cluster,
                 "of --as: the cluster that the plan is of (default: found among the ready-made)")
      ->type_name("NAME|FILE");
  app.add_option("--profile", options->from.profile,
                 "of --as: the profile that the plan is of (default: what its file says)")
      ->type_name("NAME|FILE");
  app.option_defaults()->group(group::kOutput);
  app.add_option("--dialect", options->dialect,
                 "trt (TensorRT's DistCollective), ort (com.microsoft, only among all ranks)")
      ->check(CLI::IsMember({"trt", "ort"}));
  app.add_option("--as", options->as,
                 "the plan as the settings of a training program: megatron (flags), deepspeed "
                 "(JSON), torchtitan (TOML), nanotron (YAML), mindspore (Python and JSON)\n"
                 "What of the plan has no word there is named, with what the nearest plan that has "
                 "costs more.")
      ->check(CLI::IsMember({"megatron", "deepspeed", "torchtitan", "nanotron", "mindspore"}));
  app.add_option("-o,--output", options->output,
                 "folder (default: that of the plan); of --as: file (default: standard output)")
      ->type_name("PATH");
  return [options, &common, &app] { return run(app, *options, common); };
}

}  // namespace autopar::cli
