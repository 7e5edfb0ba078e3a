// autopar apply and autopar price: a given strategy, complete or partial.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "autopar/kernels.hpp"
#include "cli/applied.hpp"
#include "cli/hub_ops.hpp"
#include "cli/outputs.hpp"
#include "cli/pipeline_plan.hpp"
#include "cli/pipeline_report.hpp"
#include "cli/price_step.hpp"
#include "cli/run_step.hpp"
#include "cli/show_program.hpp"

namespace autopar::cli {

namespace {

// What a file says of an op beside its assignment must be what the assignment means.
bool counts_follow(const StrategyFile& file, const Graph& graph, const std::vector<OpSpecs>& specs,
                   const Mesh& mesh) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto pin = file.pins.ops.find(graph.ops[o].name);
    if (pin == file.pins.ops.end()) continue;
    const auto& [assignment, in, out] = pin->second;
    if (in && *in != strategy_of(specs[o].inputs, mesh)) return false;
    if (out && *out != strategy_of(specs[o].outputs, mesh)) return false;
  }
  return true;
}

// All of a strategy as pins.
Pins pins_of(const StrategyFile& file, const Graph& graph, const Strategy& strategy) {
  Pins pins = file.pins;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind == ValueKind::kConstant) continue;
    const ValueSpecs& specs = strategy.values[v];
    const ValueId id(static_cast<std::int64_t>(v));
    const bool is_output =
        std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
    pins.values[graph.values[v].name] = {
        to_text(specs.spec, strategy.mesh), to_text(specs.hub, strategy.mesh),
        is_output ? to_text(specs.output, strategy.mesh) : std::string()};
  }
  return pins;
}

void free_boundary(const Graph& graph, Pins& pins) {
  for (const auto* boundary : {&graph.inputs, &graph.outputs}) {
    for (ValueId id : *boundary) pins.values.erase(graph.value(id).name);
  }
}

// Whether a complete strategy is what --inputs and --outputs ask for.
bool keeps_layouts(const StrategyFile& file, const SearchRequest& request,
                   const Strategy& strategy) {
  const auto free = BoundaryLayout::Kind::kFree;
  if (request.inputs.kind == free && request.outputs.kind == free) return true;
  SearchRequest pinned = request;
  pinned.mesh = strategy.mesh;
  pinned.limit_memory = false;
  pinned.pins = pins_of(file, request.graph, strategy);
  const auto outcome = search(pinned);
  return outcome && outcome->strategy == strategy;
}

// The file's bound, where it was proven of this model on this cluster, priced alike; else 0.
double proven_bound(const StrategyFile& file, const std::string& cost_model, const Inputs& inputs) {
  if (!file.cost || file.model_sha256 != inputs.model.sha256 ||
      file.cluster_sha256 != inputs.cluster_sha256) {
    return 0;
  }
  const auto& price = file.cost->price;
  if ((price ? price->cost_model : "roofline") != cost_model) return 0;
  return price ? price->lower_bound : file.cost->lower_bound_seconds;
}

// False where the file is not one to be taken as it is: as pins it then says why not, or what else
// is asked for leaves its boundary free.
Result<bool> price_complete(const StrategyFile& file, Applied& applied) {
  const SearchRequest& request = *applied.request;
  AUTOPAR_TRY(strategy, complete_strategy(request.graph, request.rules, request.cluster, file));
  AUTOPAR_TRY(specs, op_specs_of(request.graph, request.rules, strategy));
  if (!counts_follow(file, request.graph, specs, strategy.mesh)) return false;
  if (!keeps_layouts(file, request, strategy)) return false;
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, strategy.mesh));
  AUTOPAR_TRY(cost, evaluate(request.graph, request.rules, strategy, *model, request.updates));
  applied.outcome.strategy = std::move(strategy);
  applied.outcome.cost = std::move(cost);
  applied.outcome.searcher = file.searcher.empty() ? "given" : file.searcher;
  const double bound = proven_bound(file, request.cost_model, *applied.inputs);
  applied.outcome.lower_bound = std::min(bound, applied.outcome.cost.time());
  applied.outcome.unlimited_lower_bound = applied.outcome.lower_bound;
  return true;
}

// A strategy of a training step that was made of this model: the step is made again.
Status take_training(const StrategyFile& file, PlanOptions& options) {
  if (file.training.empty()) return Ok{};
  AUTOPAR_TRY(is_step, is_training_step(options.model));
  if (is_step) {
    if (!file.has_passes) return Ok{};
    return usage_error(options.model + " is a training step on the whole batch, and " + file.path +
                       " is of one of " + std::to_string(file.micro_batches) +
                       " passes; give the forward model that the step was made of");
  }
  AUTOPAR_TRY(training, training_choice_of(file));
  options.training = std::move(training);
  options.train = true;
  return Ok{};
}

// What the model, or a chunk of it, does not have is said of others: it is not asked for.
void leave_out_others(SearchRequest& request) {
  std::set<std::string> ops, values;
  for (const Op& op : request.graph.ops) ops.insert(op.name);
  for (const Value& value : request.graph.values) values.insert(value.name);
  std::erase_if(request.pins.ops, [&](const auto& pin) { return ops.count(pin.first) == 0; });
  std::erase_if(request.pins.values, [&](const auto& pin) { return values.count(pin.first) == 0; });
}

}  // namespace

Result<StrategyFile> strategy_to_apply(PlanOptions& options) {
  AUTOPAR_TRY(file, read_strategy(options.strategy_file));
  tell_of_strategy(file);
  AUTOPAR_RETURN_IF_ERROR(take_training(file, options));
  return std::move(file);
}

Result<std::unique_ptr<Inputs>> inputs_to_apply(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common) {
  AUTOPAR_TRY(inputs, load_inputs(options, common));
  if (options.train) name_training_step(options);
  if (inputs->training.empty()) inputs->training = file.training;
  if (options.gradient_bucket.empty()) inputs->gradient_bucket = file.gradient_bucket;
  return std::move(inputs);
}

Result<std::unique_ptr<Applied>> apply_strategy(PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(file, strategy_to_apply(options));
  if (!file.stages.empty()) {
    return input_error(file.path + ": is of " + std::to_string(file.stages.size()) +
                       " stages; expected a strategy of one");
  }
  return apply_to_model(file, options, common);
}

Result<std::unique_ptr<Applied>> apply_to_model(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common) {
  AUTOPAR_TRY(inputs, inputs_to_apply(file, options, common));
  return apply_to(std::move(inputs), file, false, options, common);
}

Result<std::unique_ptr<Applied>> apply_to(std::unique_ptr<Inputs> inputs, const StrategyFile& file,
                                          bool is_chunk, const PlanOptions& options,
                                          const CommonOptions& common) {
  auto applied = std::make_unique<Applied>();
  applied->inputs = std::move(inputs);
  AUTOPAR_TRY(repeated, parse_recompute_option(options.recompute, &file));
  if (repeated && *repeated != Recompute::kNone) {
    AUTOPAR_TRY(done, repeat_ops(*applied->inputs, *repeated));
    static_cast<void>(done);
  }
  AUTOPAR_RETURN_IF_ERROR(share_in_phases(*applied->inputs, cost_model_of(file, options)));
  AUTOPAR_TRY(request, make_request(*applied->inputs, options, common));
  applied->request.emplace(request);
  SearchRequest& asked = *applied->request;
  AUTOPAR_RETURN_IF_ERROR(add_pins(file, *applied->inputs, asked));
  AUTOPAR_RETURN_IF_ERROR(share_pinned_hubs(file, *applied->inputs, asked));
  if (is_chunk) leave_out_others(asked);
  find_kernels(*applied->inputs, options);
  if (Status known = check_names(asked.pins, asked.graph); !known) {
    return with_pin_file(known.error(), options.strategy_file);
  }
  if (common.mesh.empty() && is_complete(asked.graph, file)) {
    AUTOPAR_TRY(taken, price_complete(file, *applied));
    if (taken) return applied;
    free_boundary(asked.graph, asked.pins);
  }
  AUTOPAR_TRY(fill, parse_fill(options.fill));
  asked.fill = fill;
  // What is given is given: whether it fits is said, not decided here.
  asked.limit_memory = fill == Fill::kSearch;
  auto outcome = search(asked);
  if (!outcome) return with_pin_file(outcome.error(), options.strategy_file);
  applied->outcome = std::move(*outcome);
  // Nothing is proven about other plans than those of this fill.
  if (fill != Fill::kSearch) applied->outcome.lower_bound = 0;
  applied->outcome.searcher = "given";
  applied->outcome.trials.clear();
  return applied;
}

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

Result<int> run_apply(PlanOptions options, const CommonOptions& common) {
  PhaseClock clock;
  AUTOPAR_TRY(file, strategy_to_apply(options));
  if (!file.stages.empty()) return run_pipeline(file, options, common, false);
  AUTOPAR_TRY(applied, apply_to_model(file, options, common));
  clock.end("import and price");
  AUTOPAR_RETURN_IF_ERROR(check_data_names(applied->request->graph, options));
  warn_if_too_large(*applied);
  AUTOPAR_RETURN_IF_ERROR(write_outputs(*applied->request, applied->outcome, *applied->inputs,
                                        options, common, std::move(clock)));
  return 0;
}

// A program with collectives is priced as it stands.
Result<int> run_price_program(const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  AUTOPAR_TRY(files, read_programs(options.model, dims));
  tell_of_programs(files);
  AUTOPAR_TRY(cluster, cluster_of_option(options.cluster));
  for (PlanFile& file : files) {
    Graph& program = file.plan.program;
    program.kernels = group_kernels(program, Profile(), options.updates);
  }
  AUTOPAR_TRY(price, price_programs(files, cluster.cluster));
  std::cout << (common.json ? price_json(files, price) : price_table(files, price));
  for (const PlanFile& file : files) {
    for (const std::string& warning : file.warnings) spdlog::warn("warning: {}", warning);
    for (const std::string& warning : warn_of_unknown_ops(file.plan.program)) {
      spdlog::warn("warning: {}", warning);
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
  tell_of_programs(files);
  AUTOPAR_TRY(cluster, cluster_of_option(options.cluster));
  for (PlanFile& file : files) {
    Graph& program = file.plan.program;
    program.kernels = group_kernels(program, Profile(), options.updates);
  }
  AUTOPAR_TRY(price, price_step(step, files, cluster.cluster));
  std::cout << (common.json ? step_price_json(step, files, price)
                            : step_price_table(step, files, price));
  for (const PlanFile& file : files) {
    for (const std::string& warning : file.warnings) spdlog::warn("warning: {}", warning);
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

Result<int> run_price(const CLI::App& app, PlanOptions options, const CommonOptions& common) {
  if (options.strategy_file.empty()) {
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
  AUTOPAR_TRY(file, strategy_to_apply(options));
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
  return [options, &common, &app] { return run_price(app, *options, common); };
}

}  // namespace autopar::cli
