// autopar search.

#include <CLI/CLI.hpp>
#include <chrono>
#include <set>

#include "cli/earlier_plan.hpp"
#include "cli/input_options.hpp"
#include "cli/outputs.hpp"
#include "cli/pipeline_outputs.hpp"
#include "cli/training_options.hpp"
#include "cli/weights_from.hpp"
#include "planning/forms.hpp"
#include "planning/input_pins.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/pinned_stages.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/plan_stages.hpp"
#include "report/unit.hpp"

namespace autopar::cli {

namespace {

// What a pipeline leaves no room for, or does not do as yet.
Status check_stages(const CLI::App& app, const PlanOptions& options) {
  if (options.stages != "auto") {
    AUTOPAR_TRY(stages, parse_count(options.stages, "--stages"));
    if (stages == 1) {
      return refuse_options(app, {"--schedule", "--chunks", "--cuts"},
                            "goes with --stages: one stage has no schedule");
    }
  } else {
    AUTOPAR_RETURN_IF_ERROR(
        refuse_options(app, {"--cuts"}, "goes with a number of --stages, not with auto"));
  }
  if (app.count("--micro-batches") == 0) {
    return usage_error(
        "--stages goes with --micro-batches, a number or auto: stages work on several at the same "
        "time");
  }
  if (unit_of(options.cost_model) != "seconds") {
    return usage_error("--stages: schedules are of seconds, which --cost-model " +
                       options.cost_model + " does not price in; --cost-model roofline does");
  }
  if (is_templates(options.searcher)) {
    AUTOPAR_RETURN_IF_ERROR(
        refuse_options(app, {"--pin"},
                       "does not go with --stages and --searcher " + options.searcher +
                           ": templates of pipelines read no pins; --searcher auto keeps them"));
  }
  AUTOPAR_RETURN_IF_ERROR(refuse_options(
      app, {"--copies"}, "goes with a plan of one stage: stages work on micro-batches in turn"));
  return refuse_options(app,
                        {"--dialect", "--annotate", "--dump-problem", "--fallback-functions",
                         "--io", "--inputs", "--outputs", "--mesh", "--trace"},
                        "goes with a plan of one stage");
}

// Of a model that is not trained.
Status check_model_options(const CLI::App& app, const PlanOptions& options) {
  AUTOPAR_RETURN_IF_ERROR(refuse_training_options(app));
  const bool has_passes = options.stages != "1" || options.training.micro_batches != "1";
  if (has_passes && is_templates(options.searcher)) {
    return usage_error("--searcher " + options.searcher +
                       " with --micro-batches or --stages is of training steps: it goes with "
                       "--train; --searcher auto plans a model in stages");
  }
  return Ok{};
}

// What is given must be read.
Status check_options(const CLI::App& app, const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(check_mesh_options(app, common));
  if (!options.train) AUTOPAR_RETURN_IF_ERROR(check_model_options(app, options));
  if (options.train) {
    AUTOPAR_RETURN_IF_ERROR(refuse_options(
        app, {"--annotate"},
        "writes the model itself, not its training step; where that has one pass, `autopar apply "
        "DIR/train.onnx --strategy DIR/strategy.json --cluster CLUSTER --annotate` annotates it"));
  }
  AUTOPAR_RETURN_IF_ERROR(check_stages(app, options));
  for (const Searcher& searcher : searchers()) {
    const bool is_asked = options.searcher.substr(0, options.searcher.find(':')) == searcher.name;
    if (!is_asked || searcher.proves_bound) continue;
    AUTOPAR_RETURN_IF_ERROR(
        refuse_options(app, {"--gap", "--without", "--trace"},
                       std::string("goes with a searcher that proves a bound: auto, dp; ") +
                           searcher.name + " proves none"));
  }
  if (options.searcher == "propagate") return Ok{};
  AUTOPAR_RETURN_IF_ERROR(refuse_options(
      app, {"--propagate-exact"}, "goes with --searcher propagate, not with " + options.searcher));
  return refuse_options(app, {"--fill"},
                        "says what ops get that sharding propagation does not reach; " +
                            options.searcher +
                            " decides all ops (`autopar apply --fill` fills a file)");
}

// Pins that say of which stage ops are say how many there are.
Status check_pinned_stages(const StrategyFile& file, PlanOptions& options) {
  int stages = 0;
  for (const auto& [op, stage] : file.stage_of_ops) stages = std::max(stages, stage + 1);
  const std::string asked = std::to_string(stages);
  if (stages > 0 && !options.cuts.empty()) {
    return usage_error(file.path +
                       ": pipeline_stage of its ops and --cuts both say where chunks begin; leave "
                       "out one of them");
  }
  if (stages == 0 || options.stages == asked) return Ok{};
  if (options.stages == "auto" && stages > 1) {
    options.stages = asked;
    return Ok{};
  }
  return usage_error(file.path + ": pipeline_stage of its ops goes up to " +
                     std::to_string(stages - 1) + ": it goes with --stages " + asked);
}

// The steps that are planned: one for each number of micro-batches that is asked for, and the step
// whose update is not apart for the plan of one micro-batch without stages. Numbers of which no
// schedule can be made are left out where others are asked for.
class AskedSteps {
 public:
  AskedSteps(std::shared_ptr<const Inputs> first, const PlanOptions& given,
             const PlanOptions& options, const CommonOptions& common)
      : first_(std::move(first)), given_(given), options_(options), common_(common) {}

  Result<std::vector<StagedStep>> run() {
    const std::string& asked = options_.training.micro_batches;
    if (asked != "auto" && asked != "1") {
      AUTOPAR_TRY(forms, asked_forms(options_, *first_));
      steps_.push_back({first_, given_, options_, std::move(forms)});
      return std::move(steps_);
    }
    AUTOPAR_TRY(counts, micro_batches_of(asked, first_->batch));
    for (const std::int64_t count : counts) {
      if (count == 1 && options_.stages == "auto") AUTOPAR_RETURN_IF_ERROR(add(count, true));
      AUTOPAR_RETURN_IF_ERROR(add(count, false));
    }
    if (steps_.empty()) return *error_;
    return std::move(steps_);
  }

 private:
  // A number of passes that the model cannot be had with.
  Status leave_out(std::int64_t count, const Error& error) {
    if (error.code != ErrorCode::kInput || options_.training.micro_batches != "auto") return error;
    left_out_.tell(count, error);
    error_ = error;
    return Ok{};
  }

  Status add(std::int64_t count, bool is_whole) {
    StagedStep step{first_, given_, options_, {}};
    for (PlanOptions* options : {&step.given, &step.options}) {
      options->training.micro_batches = std::to_string(count);
      options->training.options.update_apart = !is_whole;
    }
    const Graph& graph = first_->model.graph;
    if (graph.passes != count || graph.has_passes() == is_whole) {
      auto loaded = load_inputs(step.given, common_);
      if (!loaded) return leave_out(count, loaded.error());
      (*loaded)->checkpoints = first_->checkpoints;
      step.inputs = std::move(*loaded);
    }
    auto forms =
        is_whole ? std::vector<PipelineForm>{{1, 1, ""}} : asked_forms(step.options, *step.inputs);
    if (!forms) {
      error_ = forms.error();
      return Ok{};
    }
    for (PipelineForm& form : *forms) {
      if (form.stages == 1 && count == 1 && !is_whole) continue;
      form.micro_batches = count;
      step.forms.push_back(std::move(form));
    }
    if (!step.forms.empty()) steps_.push_back(std::move(step));
    return Ok{};
  }

  const std::shared_ptr<const Inputs> first_;
  const PlanOptions& given_;
  const PlanOptions& options_;
  const CommonOptions& common_;
  std::vector<StagedStep> steps_;
  LeftOutPasses left_out_;
  std::optional<Error> error_;
};

// An op or tensor that a step does not have is pinned nowhere: such steps are left out. Errors:
// all.
Status check_pinned_names(const StrategyFile& pins, std::vector<StagedStep>& steps) {
  std::optional<Error> unknown;
  LeftOutPasses left_out;
  std::erase_if(steps, [&](const StagedStep& step) {
    const Graph& graph = step.inputs->model.graph;
    Status known = check_op_names(pins, step.inputs->model, graph);
    if (known) known = check_tensor_names(pins, graph);
    if (known) return false;
    if (!unknown) unknown = known.error();
    left_out.tell(graph.passes, known.error());
    return true;
  });
  if (steps.empty()) return *unknown;
  return Ok{};
}

// Pins of repeated ops, and of those that hand on hubs, that no chunk has.
void tell_of_unmade(const StrategyFile& pins, const PipelinePlan& plan) {
  std::set<std::string> known;
  for (const ChunkPlan& chunk : plan.chunks) {
    const Graph& graph = chunk.planned->request->graph;
    for (const Op& op : graph.ops) known.insert(op.name);
    for (const Value& value : graph.values) known.insert(value.name);
  }
  const auto tell = [&](const std::string& kind, const std::string& name) {
    if (base_of(name) == name || known.count(name) != 0) return;
    logging::warn("warning: {}: {} '{}': no chunk of the plan makes it, so its pin says nothing",
                  pins.path, kind, name);
  };
  for (const auto& [name, pin] : pins.pins.ops) tell("op", name);
  for (const auto& [name, pin] : pins.pins.values) tell("tensor", name);
}

// With `auto` also without stages; what is fastest is written.
Result<int> run_stages(std::unique_ptr<Inputs> inputs, const PlanOptions& given,
                       const PlanOptions& options, std::optional<StrategyFile> pins,
                       const CommonOptions& common, std::chrono::steady_clock::time_point begin,
                       PhaseClock clock) {
  AUTOPAR_TRY(steps, AskedSteps(std::move(inputs), given, options, common).run());
  if (pins) {
    const Inputs& first = *steps.front().inputs;
    AUTOPAR_RETURN_IF_ERROR(name_as_imported(first.model, first.rules, *pins));
    AUTOPAR_RETURN_IF_ERROR(check_pinned_names(*pins, steps));
  }
  AUTOPAR_TRY(plan, plan_stages(steps, pins, common, begin, clock));
  if (plan.pipeline) {
    if (pins) tell_of_unmade(*pins, *plan.pipeline);
    AUTOPAR_RETURN_IF_ERROR(write_pipeline(*plan.pipeline, *plan.inputs, options, common));
    return 0;
  }
  const Planned& single = *plan.single;
  AUTOPAR_RETURN_IF_ERROR(write_outputs(*single.request, single.outcome, *single.inputs, options,
                                        common, std::move(clock)));
  return 0;
}

// A plan of one program has one pass: others are not tried.
Status settle_passes(PlanOptions& options) {
  const char* option = option_of_one_program(options);
  std::string& passes = options.training.micro_batches;
  if (option == nullptr || passes == "1") return Ok{};
  if (passes != "auto") {
    return usage_error(std::string(option) + kOneProgram + "; leave out one of " + option +
                       " and --micro-batches " + passes);
  }
  logging::info("one micro-batch: {} goes with a plan of one program", option);
  passes = "1";
  return Ok{};
}

// --pin; may say how many stages there are.
Result<std::optional<StrategyFile>> read_pins(PlanOptions& options, Inputs& inputs) {
  if (options.pin_file.empty()) return std::optional<StrategyFile>();
  AUTOPAR_TRY(file, read_strategy(options.pin_file));
  tell_of_strategy(file);
  if (!file.stages.empty()) {
    return input_error(options.pin_file + ": step.stages: is the strategy of " +
                       std::to_string(file.stages.size()) +
                       " stages, which `autopar apply` and `price` take; pins are files of one");
  }
  AUTOPAR_RETURN_IF_ERROR(check_pinned_stages(file, options));
  AUTOPAR_RETURN_IF_ERROR(take_checkpoints(file, inputs));
  if (!file.checkpoints.empty() && options.recompute != "auto" && options.recompute != "full") {
    inputs.warnings.push_back(options.pin_file + ": checkpoints are of --recompute full, and " +
                              options.recompute + " does not read them");
  }
  if (options.stages != "1" && repeats_by_name(file)) {
    return usage_error(options.pin_file +
                       ": ops are repeated by name in plans of one stage; expected --stages 1, "
                       "or --recompute and no recompute of an op");
  }
  return std::optional(std::move(file));
}

Result<int> run(PlanOptions given, const CommonOptions& common) {
  const bool may_have_passes = given.training.micro_batches == "auto";
  given.training.follows_batch = may_have_passes;  // one pass is read like several
  AUTOPAR_RETURN_IF_ERROR(settle_passes(given));
  given.training.options.update_apart = given.stages != "1";
  PlanOptions options = given;
  const auto begin = std::chrono::steady_clock::now();
  PhaseClock clock;
  // What must not be replaced, or cannot be written, is told before the search.
  AUTOPAR_RETURN_IF_ERROR(check_places(options));
  AUTOPAR_RETURN_IF_ERROR(check_reads_stay(options));
  if (const auto earlier = earlier_plan(options); !earlier) return earlier.error();
  AUTOPAR_TRY(inputs, load_inputs(options, common));
  if (options.train) name_training_step(options);
  AUTOPAR_RETURN_IF_ERROR(check_data_names(inputs->model.graph, options));
  AUTOPAR_TRY(pins, read_pins(options, *inputs));
  if (options.stages != "1") {
    return run_stages(std::move(inputs), given, options, pins, common, begin, std::move(clock));
  }
  const auto of_units = [&](Planned best) {
    return better_of_units(std::move(best), given, options, pins, common, begin, clock);
  };
  auto planned =
      best_of_forms(std::move(inputs), given, options, pins, common, begin, clock, {}, of_units);
  if (!planned) {
    Error error = planned.error();
    const bool may_have_stages =
        error.code == ErrorCode::kInfeasible && (options.train || options.runs_in_passes());
    if (may_have_stages && options.training.copies > 1) {
      error.message += ". With fewer --copies passes hold less at a time";
    }
    const char* one_program = option_of_one_program(options);
    if (may_have_stages && may_have_passes && one_program != nullptr) {
      error.message += ". One micro-batch was tried alone, since " + std::string(one_program) +
                       " goes with a plan of one program";
    }
    if (may_have_stages) error.message += ". Pipelines were not looked for: see --stages";
    return error;
  }
  AUTOPAR_RETURN_IF_ERROR(write_outputs(*planned->request, planned->outcome, *planned->inputs,
                                        options, common, std::move(clock)));
  return 0;
}

}  // namespace

Run add_search(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<PlanOptions>();
  options->searcher = "auto";
  add_model_options(app, *options);
  add_layout_options(app, *options);
  add_solve_options(app, *options);
  add_output_options(app, *options);
  add_training_options(app, options->training);
  add_micro_batches_option(app, options->training);
  app.add_flag("--train", options->train,
               "plan a training step of the model, which is a forward graph\n"
               "Loss, backward pass and update are added as `grad` does, and the step is written "
               "beside the plan as train.onnx.");
  app.option_defaults()->group(group::kTraining);
  app.add_option(
         "--stages", options->stages,
         "a pipeline of so many stages, each on its part of the cluster (default 1); auto\n"
         "The step is cut between ops where little crosses, so that stages have like work; "
         "each is planned on its own devices, with what its micro-batches in flight keep. "
         "Without --train the batch goes through the stages once, in micro-batches. "
         "`auto`: one stage, and every number that divides the cluster's tiers, the outermost "
         "first; the fastest is taken.")
      ->type_name("NUMBER");
  app.add_option("--chunks", options->chunks,
                 "of a pipeline: chunks of the model per stage, a number or auto (default)\n"
                 "`auto`: 1, or 2 where the schedule has several; of `--schedule auto` also 4.")
      ->type_name("NUMBER");
  app.add_option("--schedule", options->schedule,
                 "of a pipeline: 1f1b (default), gpipe, interleaved, zb-h1, zb-v, dualpipev, auto, "
                 "or a file\n"
                 "In which order a stage takes the forward and backward passes of its "
                 "micro-batches. A file has a line of actions per stage, as schedule.csv and "
                 "PyTorch's tables have them: `./mine.csv`. "
                 "Without --train: 1f1b or gpipe (the same then), interleaved, auto, or a file.")
      ->type_name("NAME|FILE");
  app.add_option("--cuts", options->cuts,
                 "of a pipeline: the forward ops that its chunks begin with, but for the first\n"
                 "As many as there are cuts, in the order of the model, with commas between. "
                 "Default: where the chunks have like work.")
      ->type_name("OP,...");
  app.add_option(
         "--zero", options->zero,
         "how parameters, gradient accumulators and optimizer states are stored: auto (default), "
         "off, 1, 2, 3\n"
         "`auto`: each as is best; `off`: all as the passes read the parameter; `1`: optimizer "
         "states and masters of mixed precision in as many parts as possible; `2`: accumulators "
         "too; `3`: parameters too.")
      ->check(CLI::IsMember({"auto", "off", "1", "2", "3"}));
  add_weights_option(app, *options);
  app.option_defaults()->group(group::kSearch);
  app.add_option(
         "--searcher", options->searcher,
         "auto (default), dp, rec, propagate, uniform, exhaustive, data_parallel, replicate\n"
         "`dp`: exact, with a lower bound (also `dynamic_programming`); `rec`: recursive halving, "
         "near instant (also `recursive_programming`); `propagate`: from the configured operators "
         "to the rest (also `sharding_propagation`); `uniform`: data, tensor, sequence, "
         "context and expert parallelism and ZeRO as Megatron-LM, DeepSpeed and torchtitan know "
         "them, the best ten "
         "listed (also `templates`), or one of them: `\"uniform:dp=8 tp=8 sp zero=1\"`; "
         "`exhaustive`: small problems only; "
         "`data_parallel` and `replicate`: the baselines; `auto`: the quick ones, and the exact "
         "one where the problem is small enough, or --gap or --time-limit is given; the cheapest "
         "plan is taken, and the report says whose it is.")
      ->type_name("NAME");
  app.add_option(
         "--moving", options->moving,
         "products and attention whose parts move between the ranks: auto (default), on, off\n"
         "Products of matrices that lie on a square of devices (SUMMA), attention with keys and "
         "values passed round a ring. They only save memory; `auto` looks at them where nothing "
         "fits, or the memory limit makes the plan of a model slower that is no training step.")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  app.add_option("--pin", options->pin_file, "strategy file whose ops and tensors are kept")
      ->type_name("FILE");
  app.add_option(
         "--dump-problem", options->dump_file,
         "write the search problem as well, as `solve` reads it\n"
         "That of the mesh given by `--mesh`, else of the plan's mesh; costs in picoseconds (in "
         "thousandths, of a cost model in other units), rounded one by one; uses in bytes.")
      ->type_name("FILE");
  app.add_option(
         "--fill", options->fill,
         "propagate: what ops get that no pin reaches: data_parallel (default), replicate, search")
      ->type_name("HOW");
  app.add_flag("--propagate-exact", options->propagate_exact,
               "propagate: the least redistribution exactly, beside the breadth-first answer\n"
               "The report says how far the breadth-first answer was from it.");
  return [options, &common, &app]() -> Result<int> {
    options->searcher = short_searcher_name(options->searcher);
    AUTOPAR_RETURN_IF_ERROR(check_options(app, *options, common));
    AUTOPAR_RETURN_IF_ERROR(settle_training_options(app, options->training));
    return run(*options, common);
  };
}

}  // namespace autopar::cli
