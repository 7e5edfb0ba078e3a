// search_bench [OPTIONS] [CLUSTER.json MODEL...]: the whole search of each model in a process of
// its own, as one JSON line: model, devices, mesh, ops, candidates, seconds by phase, cost, bound,
// gap, memory of the plan, peak memory of the process. Without arguments: the models of the
// repository, and those of AUTOPAR_SHARED where it is set, on 8 x 8 A100.
//   --searcher NAME   as in autopar search (default dp)
//   --max-axes N      meshes of up to N axes (default 3)
//   --memory GIB      per device (default: the cluster's)
//   --threads N       that look at meshes (default 1)
//   --gap SHARE       stop when the plan is so close to the bound (default 0)
//   --time-limit S    stop after so many seconds
//   --pin FILE        strategy file whose ops are kept; --inputs data_parallel too
//   --repeat N        the fastest of N runs is printed, with the slowest beside it (default 3)
//   --search-only     without the rewritten graph
//   --without NAMES   stages of the exact search that are left out
//   --trace           what each stage did, on stderr
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/kernels.hpp"
#include "planning/trace.hpp"
#include "support/stopwatch.hpp"

using namespace autopar;
namespace fs = std::filesystem;

namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

long peak_kibibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

struct Job {
  std::string cluster;
  std::string model;
  std::string searcher = "dp";
  int max_axes = kDefaultAxes;
  double memory_gib = 0;  // 0: the cluster's
  SolveOptions solve;
  std::string pins;  // a file, or empty
  bool data_parallel_inputs = false;
  bool rewrite = true;
  bool trace = false;
};

// Makes the plan and writes it to a folder that goes again; adds the seconds of both.
Status rewrite(const Job& job, const SearchRequest& request, const SearchOutcome& found,
               const std::string& sha256, nlohmann::ordered_json& seconds) {
  Stopwatch clock;
  AUTOPAR_TRY(plan, partition(request.graph, request.rules, found.strategy, request.cluster));
  seconds["rewrite"] = clock.lap();
  const fs::path folder = fs::temp_directory_path() / ("autopar-bench-" + std::to_string(getpid()));
  PlanMetadata metadata{AUTOPAR_VERSION, sha256, "", {}};
  for (const Tier& tier : request.cluster.tiers) metadata.tier_names.push_back(tier.name);
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  auto written = write_plan(plan, metadata, (folder / "plan.onnx").string(),
                            fs::path(job.model).parent_path().string());
  fs::remove_all(folder, ignored);
  if (!written) return written.error();
  seconds["write"] = clock.lap();
  return Ok{};
}

void add_plan(const SearchOutcome& found, nlohmann::ordered_json& line) {
  std::size_t candidates = 0;
  for (const MeshTrial& trial : found.trials) candidates = std::max(candidates, trial.candidates);
  line["searcher"] = found.searcher;
  line["mesh"] = to_text(found.strategy.mesh);
  line["meshes_tried"] = found.trials.size();
  line["meshes_pruned"] =
      std::count_if(found.trials.begin(), found.trials.end(),
                    [](const MeshTrial& t) { return t.end == TrialEnd::kPruned; });
  line["candidates"] = candidates;
  line["cost_seconds"] = found.cost.total();
  line["compute_seconds"] = found.cost.compute();
  line["communication_seconds"] = found.cost.communication();
  line["lower_bound_seconds"] = found.lower_bound;
  line["unlimited_lower_bound_seconds"] = found.unlimited_lower_bound;
  line["gap"] = found.gap();
  line["interrupted"] = found.interrupted;
  line["plan_memory_bytes"] = found.cost.memory.total;
}

Result<nlohmann::ordered_json> measure(const Job& job) {
  Stopwatch whole, clock;
  nlohmann::ordered_json line, seconds;
  line["model"] = fs::path(job.model).filename().string();
  AUTOPAR_TRY(cluster, read_cluster(job.cluster));
  AUTOPAR_TRY(model, import_model(job.model));
  AUTOPAR_TRY(rules, rules_of(model.graph));
  seconds["import"] = clock.lap();
  SearchRequest request{model.graph, rules, cluster.cluster};
  model.graph.kernels = group_kernels(model.graph, cluster.cluster.profile, request.updates);
  rules.class_of_op = classes_of(model.graph, rules.rules);
  request.searcher = job.searcher;
  request.max_axes = job.max_axes;
  request.memory_limit = static_cast<Bytes>(job.memory_gib * 1024 * 1024 * 1024);
  request.solve = job.solve;
  if (job.data_parallel_inputs) request.inputs.kind = BoundaryLayout::Kind::kDataParallel;
  if (!job.pins.empty()) {
    AUTOPAR_TRY(file, read_strategy(job.pins));
    request.pins = file.pins;
  }
  const double cpu_before = cpu_seconds();
  AUTOPAR_TRY(found, search(request));
  for (const MeshTrial& trial : found.trials) {
    if (!job.trace || trial.stages.empty()) continue;
    std::fprintf(stderr, "mesh %s: %s\n%s", to_text(trial.mesh).c_str(), name_of(trial.end),
                 trace_text(trial.stages, 1e3).c_str());
  }
  const double search_cpu = cpu_seconds() - cpu_before;
  seconds["build"] = seconds["solve"] = 0.0;
  for (const MeshTrial& trial : found.trials) {
    seconds["build"] = seconds["build"].get<double>() + trial.build_seconds;
    seconds["solve"] = seconds["solve"].get<double>() + trial.solve_seconds;
  }
  seconds["search"] = clock.lap();
  seconds["search_cpu"] = search_cpu;
  if (job.rewrite) {
    AUTOPAR_RETURN_IF_ERROR(rewrite(job, request, found, model.sha256, seconds));
  }
  line["ops"] = model.graph.ops.size();
  line["cluster"] = cluster.cluster.name;
  line["devices"] = cluster.cluster.device_count();
  line["max_axes"] = job.max_axes;
  add_plan(found, line);
  line["seconds"] = seconds;
  line["wall_seconds"] = whole.lap();
  line["cpu_seconds"] = cpu_seconds();
  line["peak_rss_mib"] = static_cast<double>(peak_kibibytes()) / 1024;
  return line;
}

// In a child process, so that its peak memory is its own.
nlohmann::ordered_json run_apart(const Job& job) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const auto line = measure(job);
    nlohmann::ordered_json failed = {{"model", fs::path(job.model).filename().string()},
                                     {"cluster", fs::path(job.cluster).stem().string()},
                                     {"searcher", job.searcher}};
    if (!line) failed["error"] = line.error().message;
    const std::string text = (line ? *line : failed).dump();
    const ssize_t sent = write(ends[1], text.data(), text.size());
    _exit(sent == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  auto line = nlohmann::ordered_json::parse(text, nullptr, false);
  if (line.is_object()) return line;
  return {{"model", fs::path(job.model).filename().string()}, {"error", "the process ended early"}};
}

// The fastest of the runs.
nlohmann::ordered_json fastest(const Job& job, int runs) {
  nlohmann::ordered_json best;
  std::vector<double> walls;
  for (int r = 0; r < runs; ++r) {
    nlohmann::ordered_json line = run_apart(job);
    if (line.contains("error")) return line;
    const double wall = line["wall_seconds"];
    if (walls.empty() || wall < *std::min_element(walls.begin(), walls.end())) best = line;
    walls.push_back(wall);
  }
  best["runs"] = walls.size();
  best["wall_seconds_max"] = *std::max_element(walls.begin(), walls.end());
  return best;
}

std::vector<std::string> known_models(const fs::path& root) {
  std::vector<std::string> paths = {(root / "models" / "clusters" / "dgx-a100-8x8.json").string()};
  for (const char* name : {"gpt2", "llama3_8b"}) {
    paths.push_back((root / "models" / (std::string(name) + ".onnx")).string());
  }
  const char* shared = std::getenv("AUTOPAR_SHARED");
  for (const char* name : {"bert_large", "gpt2_xl", "llama3_8b", "mixtral_8x7b_dense", "resnet50",
                           "vit_l_16", "dlrm", "face_resnet50_10m"}) {
    const fs::path path =
        fs::path(shared ? shared : "") / "data" / "models" / (std::string(name) + ".onnx");
    if (shared && fs::exists(path)) paths.push_back(path.string());
  }
  return paths;
}

}  // namespace

int main(int argc, char** argv) {
  const char* source = std::getenv("AUTOPAR_SOURCE");
  Job job;
  int repeat = 3;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool more = i + 1 < argc;
    if (argument == "--search-only") {
      job.rewrite = false;
    } else if (more && argument == "--searcher") {
      job.searcher = argv[++i];
    } else if (more && argument == "--max-axes") {
      job.max_axes = std::atoi(argv[++i]);
    } else if (more && argument == "--memory") {
      job.memory_gib = std::atof(argv[++i]);
    } else if (more && argument == "--threads") {
      job.solve.threads = std::max(1, std::atoi(argv[++i]));
    } else if (argument == "--trace") {
      job.trace = true;
    } else if (more && argument == "--without") {
      const Result<unsigned> left_out = stages_left_out(argv[++i]);
      if (!left_out) {
        std::fprintf(stderr, "%s\n", left_out.error().message.c_str());
        return 2;
      }
      job.solve.left_out = *left_out;
    } else if (more && argument == "--gap") {
      job.solve.gap = std::atof(argv[++i]);
      job.solve.most_effort = std::max(job.solve.most_effort, kEffortForGap);
    } else if (more && argument == "--time-limit") {
      job.solve.time_limit = std::atof(argv[++i]);
      job.solve.most_effort = kEffortForTime;
    } else if (more && argument == "--pin") {
      job.pins = argv[++i];
    } else if (more && argument == "--inputs" && std::string(argv[i + 1]) == "data_parallel") {
      job.data_parallel_inputs = true;
      ++i;
    } else if (more && argument == "--repeat") {
      repeat = std::max(1, std::atoi(argv[++i]));
    } else if (argument.rfind("--", 0) == 0) {
      std::fprintf(stderr, "unknown option %s; see the first lines of search_bench.cpp\n", argv[i]);
      return 2;
    } else {
      paths.push_back(argument);
    }
  }
  if (paths.empty()) paths = known_models(source ? source : ".");
  job.cluster = paths[0];
  for (std::size_t i = 1; i < paths.size(); ++i) {
    job.model = paths[i];
    std::printf("%s\n", fastest(job, repeat).dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}
