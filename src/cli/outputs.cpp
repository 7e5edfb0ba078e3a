#include "cli/outputs.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <future>
#include <iostream>
#include <numeric>
#include <set>

#include "autopar/copies.hpp"
#include "autopar/errors.hpp"
#include "autopar/export.hpp"
#include "autopar/kernels.hpp"
#include "autopar/phases.hpp"
#include "autopar/sha256.hpp"
#include "autopar/step_file.hpp"
#include "autopar/training_roles.hpp"
#include "autopar/unfinished.hpp"
#include "autopar/weights.hpp"
#include "cli/command_line.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/interrupt.hpp"
#include "cli/plan_files.hpp"
#include "cli/plan_timeline.hpp"
#include "planning/logging.hpp"
#include "report/unit.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

void add_output_options(CLI::App& app, PlanOptions& options) {
  app.option_defaults()->group(group::kOutput);
  app.add_option("-o,--output", options.output_folder, "folder (default: <model stem>.autopar)")
      ->type_name("DIR");
  app.add_option("--gradient-bucket", options.gradient_bucket,
                 "join small collectives of gradients and new weights up to this size: 25MiB\n"
                 "For the written program, whose results stay the same bit for bit; the predicted "
                 "time is that without (`autopar price DIR` prices the program, at ideal prices).")
      ->type_name("SIZE");
  app.add_option(
         "--timeline", options.timeline_file,
         "write what a rank is expected to do when: Chrome trace JSON, which Perfetto opens\n"
         "A row for compute, one for the collectives over each tier and, with a profile, one for "
         "the host that issues both. Of more than four micro-batches the first two and the last "
         "are shown. `run --timeline` writes when ranks did what.")
      ->type_name("FILE");
  app.add_option("--rows", options.rows, "costliest ops and reshards to list (default 8)")
      ->check(whole_number(0));
  app.add_option(
         "--dialect", options.dialects,
         "write the plan for another runtime too: trt (TensorRT's DistCollective), ort "
         "(com.microsoft, only among all ranks); may be repeated\n"
         "`trt` has TensorRT's `DistCollective` nodes (10.16, for all_to_all 11), `ort` the "
         "collectives of ONNX Runtime's domain `com.microsoft`, which know only the group "
         "of all ranks. Where ranks have different programs (their groups, their parts of "
         "weights) each gets its own file.")
      ->check(CLI::IsMember({"trt", "ort"}));
  app.add_flag("--annotate", options.annotate,
               "write the model itself with ONNX's sharding metadata: <model stem>.annotated.onnx\n"
               "The model as it is with the plan's layouts (IR version 11). Partial sums, which "
               "the metadata cannot say, are written as they lie once reduced.");
  app.add_flag("--fallback-functions", options.fallback_functions,
               "give the collectives in plan.onnx bodies, so that any runtime loads it; wrong on "
               "more than one rank\n"
               "The bodies are model-local functions. `run` does not use them.");
}

void add_weights_option(CLI::App& app, PlanOptions& options) {
  app.add_option(
         "--weights", options.weights,
         "referenced (default): whole, in the model's own files; sharded: a folder per rank "
         "with its slices only (safetensors, and ONNX external data)\n"
         "External data of whole weights is cloned into the folder where the file system can "
         "do that, else copied, or linked where it is large. The folders of ranks are "
         "`rank00000` and on; the slices are in a file that is both safetensors and ONNX "
         "external data.")
      ->group(group::kOutput)
      ->check(CLI::IsMember({"referenced", "sharded"}));
}

namespace {

// What the search priced plans with; in seconds, which a plan takes in any case, too.
Result<StrategyFile::Cost> cost_of(const SearchRequest& request, const SearchOutcome& outcome) {
  // What is proven about other meshes only is no proof for who reads the plan alone.
  const bool bounded = outcome.bounds_own_mesh();
  if (request.cost_model == "roofline") {
    return StrategyFile::Cost{outcome.cost.time(), bounded ? outcome.lower_bound : 0,
                              bounded ? outcome.gap() : 1, outcome.cost.memory.total};
  }
  // As `autopar price` prices the file: with the kernels of the roofline model.
  Graph graph = request.graph;
  GraphRules rules = request.rules;
  graph.kernels = group_kernels(graph, request.cluster.profile, request.updates);
  rules.class_of_op = classes_of(graph, rules.rules);
  RooflineModel model(request.cluster, outcome.strategy.mesh);
  AUTOPAR_TRY(
      cost, evaluate(graph, rules, outcome.strategy, model, request.updates, plan_limit(request)));
  return StrategyFile::Cost{
      cost.total(), 0, bounded ? outcome.gap() : 1, cost.memory.total,
      StrategyFile::Price{request.cost_model, unit_of(request.cost_model), outcome.cost.total(),
                          bounded ? outcome.lower_bound : 0}};
}

Result<std::string> strategy_text_of(const SearchRequest& request, const SearchOutcome& outcome,
                                     const Inputs& inputs, const std::string& model_name) {
  StrategyOrigin origin = origin_of(inputs, model_name);
  origin.searcher = outcome.searcher;
  AUTOPAR_TRY(cost, cost_of(request, outcome));
  origin.cost = cost;
  return strategy_to_json(request.graph, request.rules, outcome.strategy, request.cluster, origin);
}

// Beside the caller where more threads than one are asked for, else when the result is.
template <class Work>
auto beside(const SearchRequest& request, const Work& work) {
  return std::async(request.solve.threads > 1 ? std::launch::async : std::launch::deferred, work);
}

// Of the inputs of a training step.
MemoryRoles memory_roles(const TrainingRoles& roles) {
  MemoryRoles found;
  const auto add = [&found](const std::vector<std::string>& names, MemoryRole role) {
    for (const std::string& name : names) found[name] = role;
  };
  add(roles.parameters, MemoryRole::kParameter);
  add(roles.accumulators, MemoryRole::kAccumulator);
  add(roles.statistics, MemoryRole::kState);
  for (const std::string& state : roles.states) {
    found[state] = roles.copied_by(state).empty() ? MemoryRole::kState : MemoryRole::kParameter;
  }
  return found;
}

// Of a training step: what is trained, without optimizer states and 16-bit copies.
void count_trained(const Graph& graph, const TrainingRoles& roles, Report& report) {
  const std::set<std::string> trained(roles.parameters.begin(), roles.parameters.end());
  report.parameter_count = 0;
  report.parameter_bytes = 0;
  for (ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (trained.count(value.name) == 0) continue;
    report.parameter_count += static_cast<double>(element_count(value.shape));
    report.parameter_bytes += value.bytes();
  }
}

Report report_of(const SearchRequest& request, const SearchOutcome& outcome, const Inputs& inputs,
                 const PlanOptions& options) {
  Report report = build_report(request, outcome);
  report.model = fs::path(options.model).filename().string();
  report.model_sha256 = inputs.model.sha256;
  report.model_path = path_from_folder(options);
  report.warnings.insert(report.warnings.begin(), inputs.warnings.begin(), inputs.warnings.end());
  report.warnings.insert(report.warnings.end(), outcome.notes.begin(), outcome.notes.end());
  if (!inputs.mixing_op.empty()) report.warnings.push_back(told_of_mixing(inputs));
  report.recompute = inputs.repeated_by_name.empty() ? to_text(levels_of(inputs)) : "of named ops";
  if (!inputs.training_bytes.empty() && unit_of(request.cost_model) == std::string("seconds")) {
    report.training = training_work(inputs.forward, inputs.cluster);
    report.training->micro_batches = request.graph.passes;
    report.training->copies = request.graph.copies;
    report.training->zero = options.zero;
  }
  report.tried = inputs.tried;
  report.repeated_ops = inputs.repeated_ops;
  // A file that says it wrongly is planned all the same.
  if (const auto roles = training_roles_of(inputs.model); roles && *roles) {
    count_trained(request.graph, **roles, report);
    report.memory_parts = memory_parts(request.graph, report.memory, memory_roles(**roles));
  }
  return report;
}

// What --dialect asks for. Returns what was written, to be told.
Result<std::string> write_dialects(const Plan& plan, const PlanMetadata& metadata,
                                   const PlanOptions& options, const std::string& model_folder,
                                   OutputFolder& files, Report& report) {
  std::string told;
  std::set<std::string> done;
  for (const std::string& name : options.dialects) {
    if (!done.insert(name).second) continue;
    AUTOPAR_TRY(written, write_dialect(plan, metadata, *parse_dialect(name), output_folder(options),
                                       model_folder, files.files()));
    files.add(written.names);
    report.warnings.insert(report.warnings.end(), written.warnings.begin(), written.warnings.end());
    told += ", " + written.names.front();
    if (written.names.size() > 2) told += " to " + written.names[written.names.size() - 2];
    told += ", " + written.names.back();
  }
  return told;
}

std::string annotated_name(const PlanOptions& options) {
  return fs::path(options.model).stem().string() + ".annotated.onnx";
}

// --annotate; the same.
Result<std::string> annotate(const SearchRequest& request, const SearchOutcome& outcome,
                             const PlanMetadata& metadata, const PlanOptions& options,
                             OutputFolder& files, Report& report) {
  if (!options.annotate) return std::string();
  const std::string name = annotated_name(options);
  AUTOPAR_TRY(warnings,
              write_annotated(options.model, request.graph, request.rules, outcome.strategy,
                              metadata, files.add(name), files.files()));
  for (const std::string& warning : warnings) {
    const auto& told = report.warnings;
    if (std::find(told.begin(), told.end(), warning) != told.end()) continue;
    report.warnings.push_back(warning);
  }
  return ", " + name;
}

// The order in which interleaved passes are predicted to do what. By ideal prices there is none.
std::vector<CopyTurn> turns_of(const SearchRequest& request, const SearchOutcome& outcome) {
  const Graph& graph = request.graph;
  std::vector<CopyTurn> turns;
  if (graph.copies == 1 || !outcome.cost.step) return turns;
  for (const StepEvent& event :
       step_events(graph, outcome.cost, outcome.strategy.mesh, request.cluster, request.updates)) {
    const CostTerm& term = outcome.cost.terms[event.term];
    const Op& op = graph.op(when_of(term, graph));
    if (event.pass >= graph.copies || op.phase == Phase::kUpdate) continue;
    const auto copy = static_cast<std::size_t>(event.pass);
    if (event.stream == StepEvent::Stream::kLink) {
      turns.push_back({copy});
    } else if (event.stream == StepEvent::Stream::kCompute && term.op.valid() &&
               !term.value.valid()) {
      turns.push_back({copy, op.name});
    }
  }
  return turns;
}

Result<Programs> programs_of(const SearchRequest& request, const SearchOutcome& outcome,
                             const Inputs& inputs) {
  const Graph& graph = request.graph;
  Programs programs;
  if (!graph.has_passes()) {
    AUTOPAR_TRY(plan, partition(graph, request.rules, outcome.strategy, request.cluster,
                                inputs.gradient_bucket));
    programs.plans.push_back(std::move(plan));
    return programs;
  }
  AUTOPAR_TRY(parts, parts_of(graph, request.rules, outcome.strategy));
  Step& step = programs.step;
  step.world_size = outcome.strategy.mesh.size();
  step.micro_batches = graph.passes / graph.copies;
  step.copies = graph.copies;
  step.micro_inputs = inputs.micro_inputs;
  step.outputs = outputs_of_step(inputs);
  add_told(parts.update.graph, inputs.loss, {}, step);
  const std::vector<CopyTurn> turns = turns_of(request, outcome);
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(step.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const bool is_trained = has_backward_pass(graph);
  for (const StepPart* part : {&parts.pass, &parts.update}) {
    if (part->graph.ops.empty()) continue;  // nothing is updated
    const bool is_pass = part == &parts.pass;
    const StepPhase phase = !is_pass     ? StepPhase::kUpdate
                            : is_trained ? StepPhase::kForwardBackward
                                         : StepPhase::kForward;
    const auto interleaved = [&](const Plan& plan) {
      return interleave_copies(plan, is_pass ? graph.copies : 1, step.micro_inputs, step.outputs,
                               turns);
    };
    AUTOPAR_TRY(one, partition(part->graph, part->rules, part->strategy, request.cluster,
                               inputs.gradient_bucket));
    AUTOPAR_TRY(plan, interleaved(one));
    programs.plans.push_back(std::move(plan));
    if (!inputs.mixing_op.empty()) {
      AUTOPAR_TRY(alone, interleaved(unsharded(part->graph)));
      programs.unsharded.emplace_back(phase, std::move(alone));
    }
    const std::string file = std::string("plan.c0.") + name_of(phase) + ".onnx";
    step.programs.push_back({file, 0, phase, ranks});
  }
  if (!inputs.mixing_op.empty()) step.reference = StepReference::kPasses;
  step.lines = plain_schedule(step.programs, step.micro_batches);
  AUTOPAR_RETURN_IF_ERROR(verify(step));
  return programs;
}

// What of a step of several programs cannot be written.
Status check_step_options(const SearchRequest& request, const PlanOptions& options) {
  const char* option = option_of_one_program(options);
  if (option == nullptr || !request.graph.has_passes()) return Ok{};
  return usage_error(std::string(option) + kOneProgram);
}

}  // namespace

std::string path_from_folder(const PlanOptions& options) {
  return fs::proximate(fs::absolute(options.model), fs::absolute(output_folder(options))).string();
}

const char* option_of_one_program(const PlanOptions& options) {
  if (!options.dialects.empty()) return "--dialect";
  if (options.fallback_functions) return "--fallback-functions";
  return options.io == "full" ? "--io full" : nullptr;
}

StrategyOrigin origin_of(const Inputs& inputs, const std::string& model_name) {
  StrategyOrigin origin;
  origin.model_name = model_name;
  origin.model_sha256 = inputs.model.sha256;
  origin.cluster_name = inputs.cluster.name;
  origin.cluster_sha256 = inputs.cluster_sha256;
  origin.profile_name = inputs.cluster.profile.name;
  origin.profile_sha256 = inputs.profile_sha256;
  take_recompute(inputs, origin);
  origin.checkpoints = inputs.checkpoints;
  origin.training = inputs.training;
  origin.gradient_bucket = inputs.gradient_bucket;
  origin.memory_limit = inputs.memory_limit;
  origin.batch = inputs.planned_batch;
  return origin;
}

std::vector<StepOutput> outputs_of_step(const Inputs& inputs) {
  if (!inputs.outputs.empty()) return inputs.outputs;
  switch (inputs.loss_combining) {
    case LossCombining::kMean:
      return {{inputs.loss, Combining::kMean}};
    case LossCombining::kSum:
      return {{inputs.loss, Combining::kSum}};
    case LossCombining::kLast:
      return {{inputs.loss, Combining::kLast}};
  }
  AUTOPAR_CHECK(false, "a loss that is not combined");
}

void add_told(const Graph& update, const std::string& loss, const std::set<std::string>& handed,
              Step& step) {
  for (const ValueId output : update.outputs) {
    const std::string& name = update.value(output).name;
    const bool is_told = !is_next(name) && name != loss && handed.count(name) == 0;
    if (is_told) step.outputs.push_back({name, Combining::kLast});
  }
}

TrainingWork training_work(const ForwardWork& forward, const Cluster& cluster) {
  TrainingWork work{.samples = forward.samples, .tokens = forward.tokens};
  for (const auto& [dtype, flops] : forward.contractions) {
    const double peak = peak_of(cluster.device, dtype).second;
    work.model_flops += 3 * flops;
    work.at_peak += 3 * flops / (peak * static_cast<double>(cluster.device_count()));
  }
  return work;
}

Status check_data_names(const Graph& graph, const PlanOptions& options) {
  const auto is_ours = [&](const fs::path& location) {
    const std::string name = location.begin()->string();
    const bool of_ranks = name.rfind("plan.", 0) == 0 &&
                          (name.ends_with(".onnx") || name.ends_with(".json"));  // dialects
    const bool of_a_rank =
        name.rfind("rank", 0) == 0 && name.size() > 4 &&
        std::all_of(name.begin() + 4, name.end(), [](char c) { return c >= '0' && c <= '9'; });
    return name == "strategy.json" || name == "report.json" || name == "step.json" ||
           name == "schedule.csv" || name == kTrainingFile || of_ranks || of_a_rank ||
           (options.annotate && name == annotated_name(options));
  };
  for (const Value& value : graph.values) {
    const auto* external = std::get_if<ExternalData>(&value.data);
    if (external == nullptr || !is_ours(fs::path(external->location).lexically_normal())) continue;
    return input_error(options.model + ": the external data '" + external->location +
                       "' of initializer '" + value.name + "' has the name of a file that is " +
                       "written beside the plan; rename it in the model "
                       "(onnx.save_model with location=...)");
  }
  return Ok{};
}

// The rewriting, with what is told of the plan; then its file, with the baselines.
Status write_outputs(const SearchRequest& request, const SearchOutcome& outcome,
                     const Inputs& inputs, const PlanOptions& options, const CommonOptions& common,
                     PhaseClock clock) {
  AUTOPAR_RETURN_IF_ERROR(check_step_options(request, options));
  end_on_interrupt();
  const std::string folder = output_folder(options);
  const std::string model_name = fs::path(options.model).filename().string();
  auto told = beside(request, [&] {
    return std::pair(strategy_text_of(request, outcome, inputs, model_name),
                     report_of(request, outcome, inputs, options));
  });
  AUTOPAR_TRY(programs, programs_of(request, outcome, inputs));
  auto [strategy, report] = told.get();
  if (!strategy) return strategy.error();
  clock.end("rewrite");

  auto baselines = beside(request, [&] { return run_baselines(request, outcome); });
  AUTOPAR_TRY(earlier, earlier_plan(options));
  OutputFolder files(folder);
  AUTOPAR_RETURN_IF_ERROR(files.make());
  PlanMetadata metadata = metadata_of(request, inputs, *strategy);
  metadata.fallback_functions = options.fallback_functions;
  const std::string& data_folder = inputs.data_folder;
  AUTOPAR_TRY(training_warnings, write_training_file(inputs, request.graph, files));
  report.warnings.insert(report.warnings.end(), training_warnings.begin(), training_warnings.end());
  AUTOPAR_TRY(plan_warnings, write_programs(programs, metadata, options, inputs,
                                            threads_of_search(common), files));
  AUTOPAR_RETURN_IF_ERROR(files.write("strategy.json", *strategy));
  for (const std::string& warning : plan_warnings) {
    const auto& told = training_warnings;
    if (std::find(told.begin(), told.end(), warning) != told.end()) continue;
    report.warnings.push_back(warning);
  }
  if (options.fallback_functions) {
    report.warnings.push_back(
        "plan.onnx HAS FALLBACK FUNCTIONS: a runtime without kernels for "
        "ai.autopar loads it, and computes WRONG RESULTS on more than one rank");
  }
  AUTOPAR_TRY(
      more, write_dialects(programs.plans.front(), metadata, options, data_folder, files, report));
  AUTOPAR_TRY(annotated, annotate(request, outcome, metadata, options, files, report));
  if (!options.timeline_file.empty()) {
    AUTOPAR_RETURN_IF_ERROR(
        write_file_atomically(options.timeline_file, plan_timeline_json(request, outcome)));
  }
  clock.end("write");
  report.baselines = baselines.get();
  clock.end("baselines");
  AUTOPAR_RETURN_IF_ERROR(files.write("report.json", to_json(report)));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  if (programs.step.programs.empty()) AUTOPAR_RETURN_IF_ERROR(remove_earlier_step(folder));
  tell_of_earlier(folder, earlier, files.written(), options.model);
  clock.end("write");
  report.phases = clock.phases();
  for (const auto& [phase, seconds] : report.phases) {
    logging::debug("{}: {}", phase, format_seconds(seconds));
  }
  for (const std::string& file : files.written()) logging::debug("wrote {}", file);
  for (const std::string& warning : report.warnings) logging::warn("warning: {}", warning);
  if (common.json) {
    std::cout << to_json(report);
  } else if (!common.quiet) {
    report.warnings.clear();
    std::cout << to_table(report, options.rows) << "\nwrote " << folder
              << "/: " << (inputs.has_whole_step ? "train.onnx, " : "") << "strategy.json, "
              << names_of(programs) << ", report.json" << more << annotated
              << (options.weights == "sharded"
                      ? ", a folder per rank with its " + std::string(kWeightsFile)
                      : "")
              << "\n";
  }
  return Ok{};
}

}  // namespace autopar::cli
