// autopar run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "autopar/exec.hpp"
#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/npz.hpp"
#include "autopar/unfinished.hpp"
#include "cli/command.hpp"
#include "cli/command_line.hpp"
#include "cli/in_processes.hpp"
#include "cli/model_path.hpp"
#include "cli/run_program.hpp"
#include "cli/run_report.hpp"
#include "cli/run_step.hpp"
#include "cli/run_table.hpp"
#include "cli/show_program.hpp"
#include "cli/timeline_json.hpp"
#include "cli/weights_from.hpp"
#include "planning/logging.hpp"
#include "weights/step_weights.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

struct RunOptions {
  std::string plan;
  std::string ranks_by = "threads";
  std::string model;
  std::string data;
  std::string weights_from;
  std::string save;
  double rtol = RunRequest{}.rtol;
  double atol = RunRequest{}.atol;
  Seconds timeout = RunRequest{}.timeout;
  int steps = RunRequest{}.steps;
  std::string updates = RunRequest{}.updates;
  int repeat = RunRequest{}.repeat;
  std::string timeline;  // its file; empty: none
  std::string profile;   // refused, with what to write in its place
  bool strict = false;   // no element is excused at a jump
};

// What graphs tell of inputs and outputs: of the model, else of the programs.
void add_properties(const RunOptions& options, const std::vector<GraphOfStep>& graphs,
                    RunRequest& request) {
  for (const GraphOfStep& program : graphs) {
    request.distributions.merge(distributions_of(*program.graph));
  }
  request.coarser_types.merge(coarser_types_of(graphs, request.steps, request.updates));
  if (!options.strict) request.jumps.merge(jumps_of(graphs, request.steps, request.updates));
}

// Of the programs of a plan each by itself: their values have nothing to do with each other.
void add_properties(const RunOptions& options, const std::vector<PlanFile>& files,
                    RunRequest& request) {
  if (request.step) return add_properties(options, graphs_of(files, *request.step), request);
  for (const PlanFile& file : files) {
    add_properties(options, {{&file.plan.program}}, request);
  }
}

// What Adam divides by the size of its gradient, and the mean of that, by the names of training.
void add_gradients(const TrainingRoles& roles, RunRequest& request) {
  if (roles.optimizer != "adam" && roles.optimizer != "adamw") return;
  const auto add = [&](const std::string& name, const std::string& parameter) {
    const std::string mean = "adam.m." + parameter;
    if (!has_name(roles.states, mean)) return;
    request.gradients[next_name(name)] = next_name(mean);
  };
  for (const std::string& parameter : roles.parameters) add(parameter, parameter);
  for (const std::string& state : roles.states) {
    const std::string copied = roles.copied_by(state);
    if (!copied.empty()) add(state, copied);
  }
}

// The model to compare with, and what it tells of inputs and outputs; where there is none or it
// cannot be read, the programs tell. A program that somebody wrote may have no model.
Status add_model(const RunOptions& options, const std::string& given,
                 const std::vector<PlanFile>& files, const ImportOptions& import,
                 RunRequest& request) {
  const PlanFile& file = files[0];
  request.may_lack_expected = file.by_hand && !(request.step && !given.empty());
  if (file.by_hand && given.empty() && file.metadata.model_sha256.empty()) {
    if (request.expected.empty()) {
      logging::warn("warning: nothing to compare the outputs with; say --model or --data");
    }
    add_properties(options, files, request);
    return Ok{};
  }
  // A training step is a model of its own, on its batch.
  const bool is_training = request.step && !file.metadata.data;
  const auto inputs =
      is_training ? std::vector<BoundaryValue>() : whole_inputs(files, request.step);
  const auto model = unsharded_model(given, file, inputs, import);
  if (!model && (request.expected.empty() || !given.empty())) return model.error();
  if (model) {
    logging::debug("compared with the unsharded model {}", model->path);
    request.model_path = model->path;
    request.model_bytes = model->bytes;
  }
  if (model && model->graph) {
    add_properties(options, {{&*model->graph}}, request);
  } else {
    add_properties(options, files, request);
  }
  return Ok{};
}

// What the results are compared with. Rank 0 alone has it.
Status add_reference(const RunOptions& options, const std::vector<PlanFile>& files,
                     const std::map<std::string, std::int64_t>& dims, RunRequest& request) {
  const ImportOptions import{.dims = dims, .updates = options.updates};
  const std::string folder = step_folder_of(options.plan);
  if (folder.empty() || !options.model.empty()) {
    return add_model(options, options.model, files, import, request);
  }
  if (request.step->reference == StepReference::kWholeBatch) {
    return add_model(options, whole_step_in(folder, files.front()), files, import, request);
  }
  AUTOPAR_TRY(passes, passes_of(folder, *request.step, dims));
  logging::debug("compared with {} unsharded passes, one for each micro-batch",
                 request.step->micro_batches);
  add_properties(options, graphs_of(passes.files, *passes.request->step), request);
  request.passes = std::move(passes.request);
  return Ok{};
}

// A program of a step has inputs and outputs that no model has.
Status check_is_whole(const RunOptions& options) {
  if (!options.model.empty() || !options.data.empty()) return Ok{};
  const fs::path path = options.plan;
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  if (!is_step_folder(folder)) return Ok{};
  const auto step = read_step(folder);
  const bool is_part = step && std::any_of(step->programs.begin(), step->programs.end(),
                                           [&](const StepProgram& program) {
                                             return program.file == path.filename().string();
                                           });
  if (!is_part) return Ok{};
  return usage_error(options.plan + ": it is a program of the step in " + folder +
                     ", and by itself there is nothing to compare its outputs with; run the step: "
                     "autopar run " +
                     folder + ", or say --data with what to expect");
}

// The programs of a plan, or of a step.
Result<std::vector<PlanFile>> read_files(const RunOptions& options,
                                         const std::map<std::string, std::int64_t>& dims,
                                         RunRequest& request) {
  const std::string folder = step_folder_of(options.plan);
  if (folder.empty()) {
    AUTOPAR_RETURN_IF_ERROR(check_is_whole(options));
    return read_programs(options.plan, dims);
  }
  if (options.updates != RunOptions{}.updates) {
    return usage_error("--updates goes with a plan; in a step the next value of X is new.X");
  }
  AUTOPAR_TRY(step, read_step(folder));
  AUTOPAR_TRY(files, read_step_programs(folder, step, dims));
  request.step = std::move(step);
  return std::move(files);
}

// What every rank has to know, and what is rank 0's alone: the unsharded model and given outputs.
// `own`: the rank that this process is; nothing: all of them.
Result<RunJob> job_of(const RunOptions& options, const CommonOptions& common,
                      std::optional<std::int64_t> own) {
  const bool is_first = own.value_or(0) == 0;
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  RunJob job;
  RunRequest& request = job.request;
  AUTOPAR_TRY(files, read_files(options, dims, request));
  tell_of_programs(files);
  for (PlanFile& file : files) {
    keep_from_replacing(file.path);
    keep_from_replacing((fs::path(file.path).parent_path() / "strategy.json").string());
    if (is_first) {
      for (const std::string& warning : file.warnings) logging::warn("warning: {}", warning);
    }
    AUTOPAR_TRY(program, run_program(file, own));
    request.programs.push_back(std::move(program));
  }
  request.seed = common.seed;
  request.threads = common.threads;
  request.steps = options.steps;
  request.repeat = options.repeat;
  request.timeline = !options.timeline.empty();
  request.updates = options.updates;
  request.rtol = options.rtol;
  request.atol = options.atol;
  request.timeout = options.timeout;
  request.keep_outputs = !options.save.empty();
  AUTOPAR_RETURN_IF_ERROR(add_data(options.data, is_first, request));
  // The ranks' own files, where the step has such.
  const bool is_step = request.step || !files[0].metadata.training.empty();
  const std::string folder =
      request.step ? step_folder_of(options.plan) : fs::path(files[0].path).parent_path().string();
  // Of a program that reads whole weights, files of ranks there are those of an earlier plan.
  const bool reads_own = request.step || files[0].metadata.sharded();
  const bool has_own =
      options.weights_from.empty() && is_step && reads_own && has_rank_files(folder);
  // What is not trained is read from there in any case.
  const bool reads_trained = has_own && !files[0].metadata.data;
  AUTOPAR_RETURN_IF_ERROR(
      add_weights_from(reads_trained ? folder : options.weights_from, files, is_first, request));
  if (request.step && !reads_trained) {
    AUTOPAR_RETURN_IF_ERROR(feed_not_trained(folder, files, is_first, request));
  }
  if (!is_first) return job;
  const fs::path plan = files[0].path;
  job.prediction = read_prediction(plan.parent_path().string(), files[0].metadata.strategy_sha256);
  AUTOPAR_RETURN_IF_ERROR(add_reference(options, files, dims, request));
  AUTOPAR_TRY(roles, roles_of(files, options.updates));
  if (!options.strict) add_gradients(roles, request);
  if (roles.learning_rate != 0) {
    request.distributions["learning_rate"] = {.mean = roles.learning_rate, .deviation = 0};
  }
  return job;
}

// Whole outputs, named so that --data takes them as the expected ones.
Status save(const RunReport& report, const std::string& path) {
  if (path.empty()) return Ok{};
  std::map<std::string, Tensor> arrays;
  for (const auto& [name, tensor] : report.values) arrays["out." + name] = tensor;
  return write_npz(path, arrays);
}

Result<int> print(const RunReport& report, const RunJob& job, const RunOptions& options,
                  const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(save(report, options.save));
  for (const std::string& warning : report.warnings) logging::warn("warning: {}", warning);
  if (!options.timeline.empty()) {
    const std::string ranks_are = options.ranks_by == "threads" ? "thread" : "process";
    AUTOPAR_RETURN_IF_ERROR(
        write_file_atomically(options.timeline, timeline_json(report, ranks_are)));
  }
  std::cout << (common.json    ? run_json(report, job)
                : common.quiet ? run_verdict(report) + "\n"
                               : run_table(report, job));
  for (const OutputComparison& output : report.outputs) {
    if (!output.criterion.empty()) logging::debug("{}: {}", output.name, output.criterion);
  }
  std::cout.flush();
  return report.passed ? 0 : static_cast<int>(ErrorCode::kComparison);
}

// What cannot be written is told before anything runs.
Status check_outputs(const RunOptions& options) {
  AUTOPAR_RETURN_IF_ERROR(check_writable(options.save));
  return check_writable(options.timeline);
}

Result<int> run_in_threads(const RunOptions& options, const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(check_outputs(options));
  AUTOPAR_TRY(job, job_of(options, common, std::nullopt));
  AUTOPAR_TRY(report, run_threads(job.request));
  return print(report, job, options, common);
}

Result<int> run_in_world(ProcessWorld& world, const RunOptions& options,
                         const CommonOptions& common) {
  if (world.rank() == 0) AUTOPAR_RETURN_IF_ERROR(check_outputs(options));
  AUTOPAR_TRY(job, job_of(options, common, world.rank()));
  AUTOPAR_TRY(report, world.run(job.request));
  if (world.rank() == 0) return print(report, job, options, common);
  return report.passed ? 0 : static_cast<int>(ErrorCode::kComparison);
}

Result<int> run(const RunOptions& options, const CommonOptions& common) {
  if (!(options.rtol >= 0) || !(options.atol >= 0)) {
    return usage_error("--rtol and --atol must be at least 0");
  }
  if (!options.profile.empty()) {
    return usage_error("run --profile: the timeline is written by --timeline " + options.profile +
                       "; a profile is what search, apply and price go by");
  }
  if (options.ranks_by == "threads") return run_in_threads(options, common);
  return in_processes(options.ranks_by, options.timeout,
                      [&](ProcessWorld& world) { return run_in_world(world, options, common); });
}

}  // namespace

Run add_run(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<RunOptions>();
  app.add_option(
         "PLAN", options->plan,
         "a plan, a step or a program with collectives: folder, plan.onnx, step.json, model, or "
         "list of ranks' files")
      ->required();
  app.option_defaults()->group(group::kRanks);
  app.add_option("--ranks-by", options->ranks_by,
                 "what a rank is (default threads)\n"
                 "A thread of this process, a process under an MPI launcher, or a GPU.")
      ->check(CLI::IsMember({"threads", "mpi", "nccl"}));
  app.add_option("--timeout", options->timeout,
                 "how long a collective may wait for other ranks: 90s, 2m (default 60s)\n"
                 "Then the run fails, and the message says which ranks wait for which in which op, "
                 "and what "
                 "those who are missing are doing.")
      ->transform(duration())
      ->type_name("TIME");
  app.option_defaults()->group(group::kReading);
  app.add_option("--model", options->model, "the unsharded model (default: as the report says)")
      ->type_name("FILE");
  app.add_option("--data", options->data, "inputs and outputs: .npz with in.NAME and out.NAME")
      ->type_name("FILE");
  app.add_option(kWeightsFrom, options->weights_from,
                 "weights and optimizer states of a training step: .npz, .safetensors, .onnx, or a "
                 "folder with files of ranks\n"
                 "By the names of the inputs; of an .npz also in.NAME, and out.new.NAME as --save "
                 "writes. The file must have all parameters, and all states or none. What is not "
                 "there comes from the seed, as every input that is not given.")
      ->type_name("FILE");
  app.option_defaults()->group(group::kOutput);
  app.add_option("--save", options->save,
                 "write the outputs: .npz with out.NAME\n"
                 "The whole outputs, which `--data` takes as the expected ones.")
      ->type_name("FILE");
  app.option_defaults()->group(group::kComparison);
  app.add_option("--rtol", options->rtol, "relative tolerance (default 2e-4)")
      ->check(number_from_zero());
  app.add_option("--atol", options->atol, "absolute tolerance (default 2e-5)")
      ->check(number_from_zero());
  app.add_flag("--strict", options->strict,
               "excuse no element\n"
               "Else a few elements beyond the tolerance are excused in outputs behind an op that "
               "compares or rounds what was computed, and of weights that Adam steps by a gradient "
               "which is nothing but rounding; the line before PASSED says how many.");
  app.add_option("--steps", options->steps,
                 "runs, each fed with the updates (new weights) of the one before\n"
                 "Each run has the outputs that are inputs' next values in place of those inputs; "
                 "what is compared is what the last one gives.")
      ->check(whole_number(1, std::numeric_limits<int>::max()));
  app.add_option("--updates", options->updates,
                 "outputs so named hold the next value of the input `*` (default new.*)")
      ->check(name_pattern())
      ->type_name("PATTERN");
  app.option_defaults()->group(group::kTimes);
  app.add_option(
         "--repeat", options->repeat,
         "so many runs after a first one are timed, each on the same inputs\n"
         "Prints minimum, median and mean, and for each rank how long it was in local ops, waited "
         "for others and moved data in the median run. Outputs that are not the same bit for bit "
         "in "
         "all runs are warned of. Where the report beside the plan has a predicted time, predicted "
         "and measured time stand side by side, with the name of the cluster that the prediction "
         "is "
         "about.")
      ->check(number_from_zero());
  app.add_option("--timeline", options->timeline,
                 "writes a timeline of all ranks: Chrome trace JSON, which Perfetto opens\n"
                 "Runs, local ops, and collectives with their bytes, the time that they waited for "
                 "the last rank, and algorithm and bus bandwidth in the convention of nccl-tests.")
      ->type_name("FILE");
  app.add_option("--profile", options->profile)->group("");  // what it was called
  return [options, &common] { return run(*options, common); };
}

}  // namespace autopar::cli
