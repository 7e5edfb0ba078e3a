// autopar run.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/exec.hpp"
#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/npz.hpp"
#include "autopar/report.hpp"
#include "autopar/sha256.hpp"
#include "autopar/weights.hpp"
#include "cli/command.hpp"
#include "cli/model_path.hpp"
#include "cli/run_table.hpp"
#include "cli/timeline_json.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

struct RunOptions {
  std::string plan;
  std::string ranks_by = "threads";
  std::string model;
  std::string data;
  std::string save;
  double rtol = RunRequest{}.rtol;
  double atol = RunRequest{}.atol;
  double timeout = RunRequest{}.timeout;
  int steps = RunRequest{}.steps;
  std::string updates = RunRequest{}.updates;
  int repeat = RunRequest{}.repeat;
  std::string profile;  // file of the timeline; empty: none
};

// What is to be run, and what was said of it before.
struct Job {
  RunRequest request;
  std::optional<Prediction> prediction;  // rank 0 only
};

// Files that go with this object.
class TemporaryFiles {
 public:
  TemporaryFiles() = default;
  TemporaryFiles(const TemporaryFiles&) = delete;
  TemporaryFiles& operator=(const TemporaryFiles&) = delete;
  ~TemporaryFiles() { remove(); }
  // An .onnx file that stands for `path`, to be written; its external data may come beside it.
  std::string add(const std::string& path) {
    const std::string key = "-" + sha256_hex(path) + "/" + kFile;
    sources_[key] = path;
    const std::string name = "autopar-" + std::to_string(getpid()) + key;
    paths_.push_back((fs::temp_directory_path() / name).parent_path());
    return (paths_.back() / kFile).string();
  }
  // A message in which the files that these stand for are named, also by other processes.
  std::string with_sources(std::string text) const {
    for (const auto& [key, path] : sources_) {
      for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key)) {
        const std::size_t before = text.find_last_of(" \t\n'\"(", at);
        const std::size_t begin = before == std::string::npos ? 0 : before + 1;
        text.replace(begin, at + key.size() - begin, path);
      }
    }
    return text;
  }
  Error with_sources(Error error) const {
    error.message = with_sources(std::move(error.message));
    return error;
  }
  // From any thread.
  void remove() const {
    std::error_code ignored;
    for (const fs::path& path : paths_) fs::remove_all(path, ignored);
  }

 private:
  static constexpr const char* kFile = "plan.onnx";
  std::vector<fs::path> paths_;
  std::map<std::string, std::string> sources_;  // by what is the same in every process
};

// A graph.json runs as the ONNX file that it stands for.
Result<std::string> reference_of(const std::string& path, TemporaryFiles& temporaries) {
  AUTOPAR_TRY(bytes, read_file(path));
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || bytes[first] != '{') return path;
  AUTOPAR_TRY(model, import_model(path, {}));
  const std::string temporary = temporaries.add(path);
  AUTOPAR_RETURN_IF_ERROR(write_graph_onnx(model.graph, temporary));
  return temporary;
}

// The weights of the program, which then has them no longer.
std::map<std::string, Tensor> take_weights(Graph& program) {
  std::map<std::string, Tensor> weights;
  for (Value& value : program.values) {
    if (auto* tensor = std::get_if<Tensor>(&value.data)) weights[value.name] = std::move(*tensor);
    value.data = {};
  }
  return weights;
}

Status add_data(const std::string& path, RunRequest& request) {
  if (path.empty()) return Ok{};
  AUTOPAR_TRY(arrays, read_npz(path));
  for (auto& [name, tensor] : arrays) {
    if (name.rfind("in.", 0) == 0) {
      request.data[name.substr(3)] = std::move(tensor);
    } else if (name.rfind("out.", 0) == 0) {
      request.expected[name.substr(4)] = std::move(tensor);
    } else {
      request.data[name] = std::move(tensor);
    }
  }
  return Ok{};
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string verdict_of(const OutputComparison& output) {
  if (!output.matches) return "WRONG" + (output.problem.empty() ? "" : ": " + output.problem);
  if (output.against.empty()) return "not compared";
  std::string text = "ok";
  if (output.kink_elements > 0) {
    text += ", " + std::to_string(output.kink_elements) + " elements at kinks";
  }
  if (output.nan_elements > 0) text += ", " + std::to_string(output.nan_elements) + " NaN";
  return text;
}

std::string table_of(const RunReport& report, const Job& job) {
  TextTable outputs{{{"output", "largest error", "relative", ""}}, {false, true, true, false}};
  for (const OutputComparison& o : report.outputs) {
    outputs.rows.push_back({o.name, scientific(o.max_absolute_error),
                            scientific(o.max_relative_error), verdict_of(o)});
  }
  const bool repeated = job.request.repeat > 0;
  TextTable times{{{"time by kind", "", "calls/rank", "time/rank", "sent/rank"}},
                  {false, false, true, true, true, true, true}};
  if (repeated) times.rows[0].insert(times.rows[0].end(), {"minimum", "mean"});
  for (const TimedKind& t : report.times) {
    times.rows.push_back({t.kind, t.collective ? "collective" : "local", std::to_string(t.count),
                          format_seconds(t.seconds), t.collective ? format_bytes(t.bytes) : ""});
    if (!repeated) continue;
    times.rows.back().push_back(format_seconds(t.spread.minimum));
    times.rows.back().push_back(format_seconds(t.spread.mean));
  }
  std::string text = to_text(outputs) + "\n" + to_text(times) + "\n";
  if (repeated) text += rank_table(report) + "\n";
  if (job.prediction) {
    text += prediction_table(*job.prediction, report, job.request.steps) + "\n";
  }
  text += "  " + std::to_string(report.ranks) + " ranks (" + report.ranks_are +
          "): " + format_seconds(report.wall);
  if (repeated) {
    text += " (median of " + std::to_string(report.timed_runs) + " runs; minimum " +
            format_seconds(report.wall_spread.minimum) + ", mean " +
            format_seconds(report.wall_spread.mean) + ")";
  }
  if (report.reference_wall > 0) {
    text += ", unsharded model: " + format_seconds(report.reference_wall);
  }
  return text + "\n";
}

std::string json_of(const RunReport& report, const Job& job) {
  nlohmann::ordered_json j = {{"format", "autopar-run"},
                              {"version", 1},
                              {"ranks", report.ranks},
                              {"ranks_are", report.ranks_are},
                              {"passed", report.passed}};
  j["outputs"] = nlohmann::ordered_json::array();
  for (const OutputComparison& o : report.outputs) {
    j["outputs"].push_back({{"name", o.name},
                            {"max_absolute_error", o.max_absolute_error},
                            {"max_relative_error", o.max_relative_error},
                            {"nan_elements", o.nan_elements},
                            {"kink_elements", o.kink_elements},
                            {"against", o.against},
                            {"matches", o.matches},
                            {"problem", o.problem}});
  }
  j["times"] = nlohmann::ordered_json::array();
  for (const TimedKind& t : report.times) {
    j["times"].push_back({{"kind", t.kind},
                          {"collective", t.collective},
                          {"calls_per_rank", t.count},
                          {"seconds_per_rank", t.seconds},
                          {"sent_bytes_per_rank", t.bytes}});
    if (job.request.repeat > 0) j["times"].back()["seconds_per_run"] = spread_json(t.spread);
  }
  j["rank_times"] = rank_json(report);
  j["timed_runs"] = report.timed_runs;
  if (job.request.repeat > 0) j["wall_seconds_per_run"] = spread_json(report.wall_spread);
  if (job.prediction) {
    j["prediction"] = prediction_json(*job.prediction, report, job.request.steps);
  }
  j["warnings"] = report.warnings;
  j["wall_seconds"] = report.wall;
  j["reference_wall_seconds"] = report.reference_wall;
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The groups of a program's collectives, each once, in the order of its ops.
Result<std::vector<GroupPartition>> partitions_of(const Plan& plan) {
  AUTOPAR_TRY(collectives, collectives_of(plan));
  std::vector<GroupPartition> partitions;
  for (ProgramCollective& collective : collectives) {
    if (!communicates(collective.collective.kind)) continue;
    GroupPartition partition{std::move(collective.groups), collective.group_size};
    if (std::find(partitions.begin(), partitions.end(), partition) == partitions.end()) {
      partitions.push_back(std::move(partition));
    }
  }
  return partitions;
}

// The program as it runs. One that was written by hand runs as it was completed, from a file of
// its own.
Result<RunProgram> program_of(PlanFile& file, TemporaryFiles& temporaries) {
  RunProgram program;
  program.path = file.path;
  if (file.by_hand) {
    program.path = temporaries.add(file.path);
    const std::string folder = fs::path(file.path).parent_path().string();
    const auto warnings =
        write_plan(file.plan, file.metadata, program.path, folder.empty() ? "." : folder);
    if (!warnings) return temporaries.with_sources(warnings.error());
    for (const std::string& warning : *warnings) spdlog::warn("warning: {}", warning);
  }
  AUTOPAR_TRY(bytes, read_file(file.path));
  program.sha256 = sha256_hex(bytes);
  program.mesh = file.plan.mesh;
  program.inputs = file.plan.inputs;
  program.outputs = file.plan.outputs;
  program.ranks = file.ranks;
  AUTOPAR_TRY(partitions, partitions_of(file.plan));
  program.partitions = std::move(partitions);
  if (file.metadata.weights == "sharded") {
    for (std::int64_t rank = 0; rank < file.world_size; ++rank) {
      program.rank_paths.push_back(rank_plan_path(file, file.path, rank));
    }
  }
  // Of external data that all ranks read: one mapping for all sessions of this process.
  if (program.rank_paths.empty() && !file.by_hand) {
    AUTOPAR_TRY(mapped, map_weights(file, file.path, 0));
    for (const auto& [name, tensor] : mapped.initializers) {
      program.weight_views[name] = {tensor.dtype, tensor.shape, tensor.data};
    }
    program.weight_owners = std::move(mapped.files);
  }
  program.weights = take_weights(file.plan.program);
  return program;
}

// The model to compare with. A program that somebody wrote may have none.
Result<Job> add_model(const RunOptions& options, const PlanFile& file, TemporaryFiles& temporaries,
                      Job job) {
  RunRequest& request = job.request;
  request.may_lack_expected = file.by_hand;
  if (file.by_hand && options.model.empty() && file.metadata.model_sha256.empty()) {
    if (request.expected.empty()) {
      spdlog::warn("warning: nothing to compare the outputs with; say --model or --data");
    }
    return job;
  }
  const auto model = model_of_plan(options.model, file.path, file.metadata.model_sha256);
  if (model) {
    AUTOPAR_TRY(path, reference_of(*model, temporaries));
    request.model_path = path;
  } else if (request.expected.empty() || !options.model.empty()) {
    return model.error();
  }
  return job;
}

// From the unsharded model; where that cannot be read, from the programs.
void add_properties(const std::vector<PlanFile>& files, const ImportOptions& import,
                    RunRequest& request) {
  if (!request.model_path.empty()) {
    const auto model = import_model(request.model_path, import);
    if (model) {
      request.distributions = distributions_of(model->graph);
      request.kinks = has_kinks(model->graph);
      return;
    }
  }
  for (const PlanFile& file : files) {
    request.distributions.merge(distributions_of(file.plan.program));
    request.kinks = request.kinks || has_kinks(file.plan.program);
  }
}

// What every rank has to know. The unsharded model is rank 0's alone.
Result<Job> job_of(const RunOptions& options, const CommonOptions& common, bool is_first,
                   TemporaryFiles& temporaries) {
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  AUTOPAR_TRY(files, read_programs(options.plan, dims));
  const fs::path plan = files[0].path;
  Job job;
  RunRequest& request = job.request;
  for (PlanFile& file : files) {
    if (is_first) {
      for (const std::string& warning : file.warnings) spdlog::warn("warning: {}", warning);
    }
    AUTOPAR_TRY(program, program_of(file, temporaries));
    request.programs.push_back(std::move(program));
  }
  request.seed = common.seed;
  request.threads = common.threads > 1 ? common.threads : 0;
  request.steps = options.steps;
  request.repeat = options.repeat;
  request.timeline = !options.profile.empty();
  request.updates = options.updates;
  request.rtol = options.rtol;
  request.atol = options.atol;
  request.timeout = options.timeout;
  request.keep_outputs = !options.save.empty();
  AUTOPAR_RETURN_IF_ERROR(add_data(options.data, request));
  if (!is_first) return job;
  job.prediction = read_prediction(plan.parent_path().string(), files[0].metadata.strategy_sha256);
  AUTOPAR_TRY(complete, add_model(options, files[0], temporaries, std::move(job)));
  add_properties(files, {.dims = dims, .updates = options.updates}, complete.request);
  return complete;
}

// Whole outputs, named so that --data takes them as the expected ones.
Status save(const RunReport& report, const std::string& path) {
  if (path.empty()) return Ok{};
  std::map<std::string, Tensor> arrays;
  for (const auto& [name, tensor] : report.values) arrays["out." + name] = tensor;
  return write_npz(path, arrays);
}

Result<int> print(const RunReport& report, const Job& job, const RunOptions& options,
                  const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(save(report, options.save));
  for (const std::string& warning : report.warnings) spdlog::warn("warning: {}", warning);
  if (!options.profile.empty()) {
    const std::string ranks_are = options.ranks_by == "threads" ? "thread" : "process";
    AUTOPAR_RETURN_IF_ERROR(
        write_file_atomically(options.profile, timeline_json(report, ranks_are)));
  }
  std::cout << (common.json ? json_of(report, job) : table_of(report, job));
  const bool compared =
      std::any_of(report.outputs.begin(), report.outputs.end(),
                  [](const OutputComparison& output) { return !output.against.empty(); });
  if (!common.json) {
    std::cout << (!report.passed ? "FAILED"
                  : compared     ? "PASSED"
                                 : "PASSED (nothing compared)")
              << "\n";
  }
  std::cout.flush();
  return report.passed ? 0 : static_cast<int>(ErrorCode::kComparison);
}

Result<int> run_in_threads(const RunOptions& options, const CommonOptions& common) {
  TemporaryFiles temporaries;
  AUTOPAR_TRY(job, job_of(options, common, true, temporaries));
  const auto report = run_threads(job.request);
  if (!report) return temporaries.with_sources(report.error());
  return print(*report, job, options, common);
}

Result<int> run_in_world(ProcessWorld& world, const RunOptions& options,
                         const CommonOptions& common, TemporaryFiles& temporaries) {
  const bool is_first = world.rank() == 0;
  world.on_sudden_end([&temporaries] { temporaries.remove(); });
  AUTOPAR_TRY(job, job_of(options, common, is_first, temporaries));
  AUTOPAR_TRY(report, world.run(job.request));
  world.on_sudden_end({});
  if (is_first) return print(report, job, options, common);
  return report.passed ? 0 : static_cast<int>(ErrorCode::kComparison);
}

// Only rank 0 prints; what goes wrong elsewhere reaches it.
Result<int> run_in_processes(const RunOptions& options, const CommonOptions& common) {
  TemporaryFiles temporaries;  // the world may remove them while it ends
  AUTOPAR_TRY(world, ProcessWorld::join(options.ranks_by, options.timeout));
  const bool is_first = world->rank() == 0;
  if (!is_first) spdlog::set_level(spdlog::level::off);
  const Result<int> code = run_in_world(*world, options, common, temporaries);
  temporaries.remove();  // after a failure the launcher may end this process in leave()
  const Status left =
      world->leave(code.ok() ? Status(Ok{}) : Status(code.error()), [&](const Error& error) {
        spdlog::error("error: {}", temporaries.with_sources(error.message));
      });
  if (left.ok()) return code;
  return static_cast<int>(left.error().code);
}

Result<int> run(const RunOptions& options, const CommonOptions& common) {
  if (!(options.rtol >= 0) || !(options.atol >= 0) || !(options.timeout > 0)) {
    return usage_error("--rtol and --atol must be at least 0, --timeout must be positive");
  }
  if (options.ranks_by == "threads") return run_in_threads(options, common);
  return run_in_processes(options, common);
}

}  // namespace

Run add_run(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<RunOptions>();
  app.add_option(
         "PLAN", options->plan,
         "a plan or a program with collectives: folder, plan.onnx, model, or list of ranks' files")
      ->required();
  app.add_option("--ranks-by", options->ranks_by, "what a rank is")
      ->check(CLI::IsMember({"threads", "mpi", "nccl"}));
  app.add_option("--model", options->model, "the unsharded model (default: as the report says)");
  app.add_option("--data", options->data, "inputs and outputs: .npz with in.NAME and out.NAME");
  app.add_option("--save", options->save, "write the outputs: .npz with out.NAME");
  app.add_option("--rtol", options->rtol, "relative tolerance");
  app.add_option("--atol", options->atol, "absolute tolerance");
  app.add_option("--steps", options->steps,
                 "runs, each fed with the updates (new weights) of the one before")
      ->check(CLI::PositiveNumber);
  app.add_option("--updates", options->updates,
                 "the outputs that are inputs' next values: new.*, * is the input's name");
  app.add_option("--repeat", options->repeat,
                 "so many runs after a first one are timed, each on the same inputs")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--profile", options->profile,
                 "writes a timeline of all ranks: Chrome trace JSON, which Perfetto opens");
  app.add_option("--timeout", options->timeout, "seconds that a collective may wait");
  return [options, &common] { return run(*options, common); };
}

}  // namespace autopar::cli
