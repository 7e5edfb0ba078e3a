// autopar show: what a file is shows in its content.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/report.hpp"
#include "cli/command_line.hpp"
#include "cli/pipeline_report.hpp"
#include "cli/run_step.hpp"
#include "cli/show_document.hpp"
#include "cli/show_json.hpp"
#include "cli/show_program.hpp"
#include "cli/show_ready_made.hpp"
#include "cli/show_step.hpp"
#include "json/parse.hpp"
#include "planning/inputs.hpp"
#include "planning/logging.hpp"
#include "planning/ready_made.hpp"

namespace autopar::cli {

namespace {

struct ShowOptions {
  std::string file;
  bool ops = false;
  std::size_t rows = 8;
};

std::string cost_text(const StrategyFile::Cost& cost) {
  if (!cost.price) {
    return format_seconds(cost.seconds) + ", lower bound " +
           format_seconds(cost.lower_bound_seconds);
  }
  const StrategyFile::Price& price = *cost.price;
  return format_price(price.cost, price.cost_model) + " " + price.unit + " (" + price.cost_model +
         "), lower bound " + format_price(price.lower_bound, price.cost_model) + "; " +
         format_seconds(cost.seconds) + " by the roofline model";
}

std::string mesh_text(const std::vector<StrategyFile::MeshAxis>& mesh) {
  std::string text;
  for (const auto& axis : mesh) text += " " + axis.name + "=" + std::to_string(axis.size);
  return text;
}

// Of a pipeline.
std::string stages_text(const StrategyFile& file) {
  std::string text =
      std::to_string(file.micro_batches) + " micro-batches, schedule " + file.schedule;
  for (std::size_t s = 0; s < file.stages.size(); ++s) {
    const StrategyFile::Stage& stage = file.stages[s];
    text += "\nstage " + std::to_string(s) + ", ranks " + std::to_string(stage.first_rank) +
            " to " + std::to_string(stage.first_rank + stage.ranks - 1) + ", mesh" +
            mesh_text(stage.mesh);
    for (const StrategyFile::Chunk& chunk : stage.chunks) {
      text += "\n  chunk " + std::to_string(chunk.chunk) + ": " + chunk.first_op + " to " +
              chunk.last_op;
      const bool repeats = !chunk.recompute.empty() && chunk.recompute != "none";
      if (repeats) {
        const bool is_mixed = !chunk.recompute_from.empty();
        text += ", recompute " + (is_mixed ? to_text(chunk.recompute_from) : chunk.recompute);
      }
      const std::size_t differing = chunk.pins.ops.size() + chunk.pins.values.size();
      if (differing > 0) {
        text += "; " + std::to_string(differing) + " ops and tensors otherwise than below";
      }
    }
  }
  return text;
}

std::string show_strategy_file(const StrategyFile& file) {
  std::string text = "strategy of " + file.model_name + " on " + file.cluster_name + ", searcher " +
                     file.searcher + "\n";
  text += file.stages.empty() ? "mesh" + mesh_text(file.mesh) : stages_text(file);
  if (file.cost) {
    text += "\n" + cost_text(*file.cost) + ", " +
            format_bytes(static_cast<double>(file.cost->memory_bytes)) + " per device";
  }
  TextTable ops{{{"op", "assignment", "in_strategy", "out_strategy"}}, {}};
  for (const auto& [name, pin] : file.pins.ops) {
    std::string assignment;
    if (pin.assignment) {
      for (const auto& [axis, factor] : *pin.assignment) {
        assignment += (assignment.empty() ? "" : " ") + axis + ":" + factor;
      }
    }
    ops.rows.push_back({name, assignment, pin.in_strategy ? counts_text(*pin.in_strategy) : "",
                        pin.out_strategy ? counts_text(*pin.out_strategy) : ""});
  }
  TextTable values{{{"tensor", "spec", "hub", "output"}}, {}};
  for (const auto& [name, pin] : file.pins.values) {
    values.rows.push_back({name, pin.spec, pin.hub_spec, pin.output_spec});
  }
  return text + "\n\n" + to_text(ops) + "\n" + to_text(values);
}

std::string format_of(const std::string& bytes) {
  const auto document = parse_json(bytes, "");
  if (!document || !document->is_object()) return "";
  const auto format = document->find("format");
  return format != document->end() && format->is_string() ? format->get<std::string>() : "";
}

// Where a file is JSON, all of it; of any other file nothing, since plans can be large.
Result<std::string> read_json(const std::string& path) {
  char first = 0;
  if (std::ifstream(path) >> first && first != '{') return std::string();
  return read_file(path);
}

// Of one file, one of several programs too; of a folder all.
Result<int> show_programs(const std::string& path, FileKind kind, const ShowOptions& options,
                          const CommonOptions& common) {
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  std::vector<PlanFile> files;
  if (kind == FileKind::kPlan && !std::filesystem::is_directory(path)) {
    AUTOPAR_TRY(file, read_plan(path));
    files.push_back(std::move(file));
  } else {
    AUTOPAR_TRY(programs, read_programs(path, dims));
    files = std::move(programs);
  }
  tell_of_programs(files);
  for (PlanFile& file : files) {
    for (std::string& warning : warn_of_unknown_ops(file.plan.program)) {
      file.warnings.push_back(std::move(warning));
    }
  }
  if (common.json) {
    AUTOPAR_TRY(text, show_programs_json(files));
    std::cout << text;
    return 0;
  }
  for (std::size_t f = 0; f < files.size(); ++f) {
    AUTOPAR_TRY(text, show_program(files[f], options.ops));
    std::cout << (f > 0 ? "\n" : "") << text;
    for (const std::string& warning : files[f].warnings) logging::warn("warning: {}", warning);
  }
  return 0;
}

// A folder with step.json, or that file.
Result<int> show_step_folder(const std::string& folder, const ShowOptions& options,
                             const CommonOptions& common) {
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  AUTOPAR_TRY(step, read_step(folder));
  AUTOPAR_TRY(files, read_step_programs(folder, step, dims));
  tell_of_programs(files);
  AUTOPAR_TRY(text,
              common.json ? show_step_json(step, files) : show_step(step, files, options.ops));
  std::cout << text;
  for (const PlanFile& file : files) {
    for (const std::string& warning : file.warnings) logging::warn("warning: {}", warning);
  }
  return 0;
}

// What is given must be read.
Status check_options(const CLI::App& app, const std::string& path, const std::string& format) {
  const bool report = format == "autopar-report";
  const bool has_ops = format.empty() || format == "autopar-graph" || format == "autopar-dialect";
  if (!report) {
    AUTOPAR_RETURN_IF_ERROR(
        refuse_options(app, {"--rows"}, "goes with a report, which " + path + " is not"));
  }
  if (has_ops) return Ok{};
  return refuse_options(app, {"--ops", "--dim"},
                        "goes with a model or a plan; " + path + " is of the format " + format);
}

Result<int> show(const CLI::App& app, const ShowOptions& options, const CommonOptions& common) {
  const bool clusters = options.file == "clusters";
  if ((clusters || options.file == "profiles") && !std::filesystem::exists(options.file)) {
    AUTOPAR_RETURN_IF_ERROR(check_options(app, options.file, "autopar-" + options.file));
    AUTOPAR_TRY(listed, clusters ? show_clusters(common.json) : show_profiles(common.json));
    std::cout << listed;
    return 0;
  }
  std::string path = std::filesystem::exists(options.file) ? "" : path_of_profile(options.file);
  if (path.empty()) {
    AUTOPAR_TRY(found, find_cluster(options.file));
    path = std::move(found);
  }
  if (const std::string folder = step_folder_of(path); !folder.empty()) {
    AUTOPAR_RETURN_IF_ERROR(check_options(app, path, ""));
    return show_step_folder(folder, options, common);
  }
  if (std::filesystem::is_directory(path)) {
    AUTOPAR_RETURN_IF_ERROR(check_options(app, path, ""));
    return show_programs(path, FileKind::kPlan, options, common);
  }
  AUTOPAR_TRY(bytes, read_json(path));
  const std::string format = format_of(bytes);
  AUTOPAR_RETURN_IF_ERROR(check_options(app, path, format));
  if (format == "autopar-cluster") {
    AUTOPAR_TRY(file, read_cluster(path));
    std::cout << (common.json ? bytes : show_cluster(file.cluster));
    return 0;
  }
  if (format == "autopar-strategy") {
    AUTOPAR_TRY(file, read_strategy(path));
    std::cout << (common.json ? bytes : show_strategy_file(file));
    return 0;
  }
  if (format == "autopar-report" && is_pipeline_report(bytes)) {
    AUTOPAR_RETURN_IF_ERROR(refuse_options(
        app, {"--rows"}, "goes with a report that lists ops; that of a pipeline lists chunks"));
    AUTOPAR_TRY(table, pipeline_table_of_report(bytes, path));
    std::cout << (common.json ? bytes : table);
    return 0;
  }
  if (format == "autopar-report") {
    AUTOPAR_TRY(report, report_of_json(bytes, path));
    std::cout << (common.json ? bytes : to_table(report, options.rows));
    return 0;
  }
  if (format == "autopar-dialect") return show_programs(path, FileKind::kByHand, options, common);
  if (!format.empty() && format != "autopar-graph") {
    std::cout << (common.json ? bytes : show_document(bytes));
    return 0;
  }
  if (const FileKind kind = kind_of_file(path); kind != FileKind::kOther) {
    return show_programs(path, kind, options, common);
  }
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  ImportOptions import_options;
  import_options.dims = dims;
  AUTOPAR_TRY(model, import_model(path, import_options));
  AUTOPAR_TRY(rules, rules_of(model.graph));
  mark_carried_data(model, rules, import_options.updates);
  tell_of_import(model);
  for (std::string& warning : warn_of_unknown_ops(model.graph)) {
    logging::warn("warning: {}", warning);
    model.warnings.push_back(std::move(warning));
  }
  std::cout << (common.json ? show_model_json(model, options.ops)
                            : show_graph(model.graph, options.ops));
  return 0;
}

}  // namespace

Run add_show(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<ShowOptions>();
  app.option_defaults()->group(group::kOutput);
  app.add_option(
         "FILE", options->file,
         "model, cluster, strategy, plan, step, program with collectives, report or other JSON "
         "file of this program; `clusters` or `profiles`: the ready-made ones")
      ->required();
  app.add_flag("--ops", options->ops, "every op");
  app.add_option("--rows", options->rows, "costliest ops and reshards of a report to list")
      ->check(whole_number(0));
  return [options, &common, &app] { return show(app, *options, common); };
}

}  // namespace autopar::cli
