// search_bench [CLUSTER.json MODEL...]: the whole search of each model in a process of its own, as
// one JSON line: seconds by phase, cost, bound, gap, memory of the plan, peak memory of the
// process. Without arguments: the models of the repository, and those of AUTOPAR_SHARED where it is
// set, on 8 x 8 A100. Options: --max-axes N, --repeat N (the fastest run of N is printed, with the
// spread).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"

using namespace autopar;
namespace fs = std::filesystem;

namespace {

class Clock {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

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

Result<nlohmann::ordered_json> measure(const std::string& cluster_path, const std::string& path,
                                       int max_axes) {
  Clock clock;
  nlohmann::ordered_json line;
  AUTOPAR_TRY(cluster, read_cluster(cluster_path));
  AUTOPAR_TRY(model, import_model(path));
  AUTOPAR_TRY(rules, rules_of(model.graph));
  const double import_seconds = clock.lap();
  SearchRequest request{model.graph, rules, cluster.cluster};
  request.max_axes = max_axes;
  AUTOPAR_TRY(found, search(request));
  const double search_seconds = clock.lap();
  AUTOPAR_TRY(plan, partition(model.graph, rules, found.strategy, cluster.cluster));
  const double rewrite_seconds = clock.lap();
  const fs::path folder = fs::temp_directory_path() / ("autopar-bench-" + std::to_string(getpid()));
  PlanMetadata metadata{"bench", model.sha256, "", {}};
  for (const Tier& tier : cluster.cluster.tiers) metadata.tier_names.push_back(tier.name);
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  auto written = write_plan(plan, metadata, (folder / "plan.onnx").string(),
                            fs::path(path).parent_path().string());
  fs::remove_all(folder, ignored);
  if (!written) return written.error();
  const double write_seconds = clock.lap();
  double build = 0, solve = 0;
  std::size_t candidates = 0;
  for (const MeshTrial& trial : found.trials) {
    build += trial.build_seconds;
    solve += trial.solve_seconds;
    candidates = std::max(candidates, trial.candidates);
  }
  line["model"] = fs::path(path).filename().string();
  line["cluster"] = cluster.cluster.name;
  line["devices"] = cluster.cluster.device_count();
  line["mesh"] = to_text(found.strategy.mesh);
  line["meshes_tried"] = found.trials.size();
  line["ops"] = model.graph.ops.size();
  line["candidates"] = candidates;
  line["seconds"] = {{"import", import_seconds},
                     {"build", build},
                     {"solve", solve},
                     {"search", search_seconds},
                     {"rewrite", rewrite_seconds},
                     {"write", write_seconds}};
  line["wall_seconds"] = import_seconds + search_seconds + rewrite_seconds + write_seconds;
  line["cpu_seconds"] = cpu_seconds();
  line["cost_seconds"] = found.cost.total();
  line["lower_bound_seconds"] = found.lower_bound;
  line["gap"] = found.gap();
  line["plan_memory_bytes"] = found.cost.memory.total;
  line["peak_rss_mib"] = static_cast<double>(peak_kibibytes()) / 1024;
  return line;
}

// In a child process, so that its peak memory is its own.
nlohmann::ordered_json run_apart(const std::string& cluster, const std::string& model,
                                 int max_axes) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const auto line = measure(cluster, model, max_axes);
    nlohmann::ordered_json failed = {{"model", fs::path(model).filename().string()}};
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
  return nlohmann::ordered_json::parse(text, nullptr, false);
}

}  // namespace

int main(int argc, char** argv) {
  const char* source = std::getenv("AUTOPAR_SOURCE");
  const fs::path root = source ? source : ".";
  int max_axes = 2, repeat = 3;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--max-axes" && i + 1 < argc) {
      max_axes = std::atoi(argv[++i]);
    } else if (argument == "--repeat" && i + 1 < argc) {
      repeat = std::max(1, std::atoi(argv[++i]));
    } else {
      paths.push_back(argument);
    }
  }
  if (paths.empty()) {
    paths.push_back((root / "models" / "clusters" / "dgx-a100-8x8.json").string());
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
  }
  for (std::size_t i = 1; i < paths.size(); ++i) {
    nlohmann::ordered_json best;
    std::vector<double> walls;
    for (int r = 0; r < repeat; ++r) {
      nlohmann::ordered_json line = run_apart(paths[0], paths[i], max_axes);
      const double wall = line.value("wall_seconds", 0.0);
      if (walls.empty() || wall < *std::min_element(walls.begin(), walls.end())) best = line;
      walls.push_back(wall);
    }
    best["runs"] = walls.size();
    best["wall_seconds_max"] = *std::max_element(walls.begin(), walls.end());
    std::printf("%s\n", best.dump().c_str());
    std::fflush(stdout);
  }
  return 0;
}
