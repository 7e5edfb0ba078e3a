// autopar apply and autopar price: a given strategy, complete or partial.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "autopar/kernels.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/input_options.hpp"
#include "cli/outputs.hpp"
#include "cli/pipeline_outputs.hpp"
#include "cli/pipeline_report.hpp"
#include "cli/price_step.hpp"
#include "cli/run_step.hpp"
#include "cli/show_program.hpp"
#include "planning/applied.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/pipeline_plan.hpp"
#include "planning/ready_made.hpp"

namespace autopar::cli {

namespace {

void warn_if_too_large(Applied& applied) {
  const SearchRequest& request = *applied.request;
  const Bytes limit = memory_limit(request);
  const Bytes upper = request.cluster.profile.upper_memory(applied.outcome.cost.memory.total);
  if (upper <= limit) return;
  applied.inputs->warnings.push_back(
      "the strategy needs " + format_bytes(static_cast<double>(upper)) +
      " per device, more than its " + format_bytes(static_cast<double>(limit)));
}

// What goes with one program for all ranks.
Status check_pipeline_options(const StrategyFile& file, const PlanOptions& options,
                              const CommonOptions& common) {
  const char* option = !options.dialects.empty()    ? "--dialect"
                       : options.annotate           ? "--annotate"
                       : options.fallback_functions ? "--fallback-functions"
                       : options.io == "full"       ? "--io full"
                       : options.inputs != "free"   ? "--inputs"
                       : options.outputs != "free"  ? "--outputs"
                       : !common.mesh.empty()       ? "--mesh"
                                                    : nullptr;
  if (option == nullptr) return Ok{};
  return usage_error(std::string(option) + " goes with a plan of one stage, and " + file.path +
                     " is of " + std::to_string(file.stages.size()));
}

Result<int> run_pipeline(const StrategyFile& file, PlanOptions options, const CommonOptions& common,
                         bool only_price) {
  AUTOPAR_RETURN_IF_ERROR(check_pipeline_options(file, options, common));
  AUTOPAR_TRY(inputs, inputs_to_apply(file, options, common));
  AUTOPAR_TRY(plan, apply_pipeline(file, *inputs, options, common));
  if (only_price) {
    std::cout << pipeline_price(plan, *inputs, options, common.json);
    return 0;
  }
  AUTOPAR_RETURN_IF_ERROR(write_pipeline(plan, *inputs, options, common));
  return 0;
}

Result<int> run_apply(PlanOptions options, CommonOptions common) {
  PhaseClock clock;
  AUTOPAR_RETURN_IF_ERROR(check_places(options));
  AUTOPAR_RETURN_IF_ERROR(check_reads_stay(options));
  if (const auto earlier = earlier_plan(options); !earlier) return earlier.error();
  AUTOPAR_TRY(file, strategy_to_apply(options, common));
  if (!file.stages.empty()) return run_pipeline(file, options, common, false);
  AUTOPAR_TRY(applied, apply_to_model(file, options, common));
  clock.end("import and price");
  AUTOPAR_RETURN_IF_ERROR(check_data_names(applied->request->graph, options));
  warn_if_too_large(*applied);
  AUTOPAR_RETURN_IF_ERROR(write_outputs(*applied->request, applied->outcome, *applied->inputs,
                                        options, common, std::move(clock)));
  return 0;
}

// What programs are priced on; finds their kernels.
Result<Cluster> cluster_for(std::vector<PlanFile>& files, const PlanOptions& options) {
  tell_of_programs(files);
  AUTOPAR_TRY(cluster, cluster_of_option(options.cluster));
  for (PlanFile& file : files) {
    Graph& program = file.plan.program;
    program.kernels = group_kernels(program, Profile(), options.updates);
  }
  return cluster.cluster;
}

// A program with collectives is priced as it stands.
Result<int> run_price_program(const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  AUTOPAR_TRY(files, read_programs(options.model, dims));
  AUTOPAR_TRY(cluster, cluster_for(files, options));
  AUTOPAR_TRY(price, price_programs(files, cluster));
  std::cout << (common.json ? price_json(files, price) : price_table(files, price));
  for (const PlanFile& file : files) {
    for (const std::string& warning : file.warnings) logging::warn("warning: {}", warning);
    for (const std::string& warning : warn_of_unknown_ops(file.plan.program)) {
      logging::warn("warning: {}", warning);
    }
  }
  return 0;
}

// A folder with step.json, or that file.
Result<int> run_price_step(const std::string& folder, const PlanOptions& options,
                           const CommonOptions& common) {
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  AUTOPAR_TRY(step, read_step(folder));
  AUTOPAR_TRY(files, read_step_programs(folder, step, dims));
  AUTOPAR_TRY(cluster, cluster_for(files, options));
  AUTOPAR_TRY(price, price_step(step, files, cluster));
  std::cout << (common.json ? step_price_json(step, files, price)
                            : step_price_table(step, files, price));
  for (const PlanFile& file : files) {
    for (const std::string& warning : file.warnings) logging::warn("warning: {}", warning);
  }
  return 0;
}

// What is given must be read.
Status check_options(const CLI::App& app, const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(check_mesh_options(app, common));
  if (options.fill == "search") return Ok{};
  return refuse_options(app, {"--gap", "--time-limit"},
                        "says when a search stops, and --fill " + options.fill +
                            " searches for nothing; --fill search does");
}

// Of what price reads for a strategy, all that a program has settled.
Status check_program_options(const CLI::App& app) {
  return refuse_options(
      app,
      {"--mesh", "--memory", "--threads", "--rules", "--inputs", "--outputs", "--updates", "--io",
       "--recompute", "--max-axes", "--cost-model", "--gap", "--time-limit", "--fill", "--profile"},
      "goes with --strategy; a program with collectives is priced as it stands");
}

Result<int> run_price(const CLI::App& app, PlanOptions options, CommonOptions common) {
  if (options.strategy_file.empty()) {
    if (!std::filesystem::exists(options.model))
      return input_error(options.model + ": no such file or folder");
    if (const std::string folder = step_folder_of(options.model); !folder.empty()) {
      AUTOPAR_RETURN_IF_ERROR(check_program_options(app));
      return run_price_step(folder, options, common);
    }
    if (kind_of_file(options.model) != FileKind::kOther) {
      AUTOPAR_RETURN_IF_ERROR(check_program_options(app));
      return run_price_program(options, common);
    }
    return usage_error("--strategy is required, since " + options.model +
                       " is a model; only a program with collectives has a price without it");
  }
  AUTOPAR_RETURN_IF_ERROR(check_options(app, options, common));
  if (options.fill != "search") {
    AUTOPAR_RETURN_IF_ERROR(refuse_options(
        app, {"--memory"}, "limits what --fill search may find; a price has no limit"));
  }
  AUTOPAR_TRY(file, strategy_to_apply(options, common));
  if (!file.stages.empty()) return run_pipeline(file, options, common, true);
  AUTOPAR_TRY(applied, apply_to_model(file, options, common));
  const Graph& graph = applied->request->graph;
  const SearchOutcome& outcome = applied->outcome;
  const std::string& name = applied->request->cost_model;
  std::cout << (common.json ? terms_json(graph, outcome.strategy.mesh, outcome.cost, name)
                            : terms_table(graph, outcome.strategy.mesh, outcome.cost, name));
  return 0;
}

CLI::Option* add_strategy_options(CLI::App& app, PlanOptions& options) {
  add_model_options(app, options);
  add_layout_options(app, options);
  add_solve_options(app, options);
  for (const char* name : {"--gap", "--time-limit"}) {
    CLI::Option* option = app.get_option(name);
    option->description("--fill search: " + option->get_description());
  }
  CLI::Option* strategy =
      app.add_option("--strategy", options.strategy_file, "strategy file, complete or partial")
          ->group(group::kReading)
          ->type_name("FILE");
  app.add_option("--fill", options.fill,
                 "what ops get that the file does not name: data_parallel (default), replicate, "
                 "search")
      ->type_name("HOW");
  return strategy;
}

}  // namespace

Run add_apply(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<PlanOptions>();
  add_strategy_options(app, *options)->required();
  add_output_options(app, *options);
  add_weights_option(app, *options);
  return [options, &common, &app]() -> Result<int> {
    AUTOPAR_RETURN_IF_ERROR(check_options(app, *options, common));
    return run_apply(*options, common);
  };
}

Run add_price(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<PlanOptions>();
  add_strategy_options(app, *options)
      ->description("strategy file, complete or partial; not for a program with collectives");
  app.get_option("MODEL")->description(
      "model.onnx or graph.json; without --strategy a plan, a step or a program with collectives: "
      "folder, plan.onnx, step.json, model, or list of ranks' files");
  return [options, &common, &app] { return run_price(app, *options, common); };
}

}  // namespace autopar::cli
