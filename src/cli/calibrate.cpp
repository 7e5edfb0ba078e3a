// autopar calibrate.
#include "autopar/calibrate.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/program_bytes.hpp"
#include "autopar/report.hpp"
#include "cli/command.hpp"
#include "cli/command_line.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/in_processes.hpp"
#include "cli/kernel_samples.hpp"
#include "cli/training_options.hpp"
#include "planning/inputs.hpp"
#include "planning/logging.hpp"
#include "planning/ready_made.hpp"

namespace autopar::cli {

namespace {

struct CalibrateOptions {
  std::string output = "cluster.json";
  std::string ranks_by = "threads";
  int ranks = 0;  // threads only; 0: one per core
  std::string name;
  bool quick = false;
  std::vector<std::string> models;
  bool train = false;  // their training steps
  TrainingChoice training;
  std::string cluster;  // whose links and device stay; empty: they are measured
  Seconds timeout = MeasureRequest{}.timeout;
};

constexpr int kMostAxes = 2;         // of meshes over which kernels are split
constexpr int kMostThreads = 64;     // for the devices of a given cluster
constexpr double kMuchFaster = 1.1;  // than a given cluster's device

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;

// The bytes of a model of one op on two inputs.
Result<std::string> model_of(const TimedOp& op, const Shape& output) {
  Graph graph;
  graph.name = "calibrate";
  const ValueId left = graph.add_value({"A", op.dtype, op.left, ValueKind::kInput, {}, {}});
  const ValueId right = graph.add_value({"B", op.dtype, op.right, ValueKind::kInput, {}, {}});
  const ValueId result = graph.add_value({"Y", op.dtype, output, ValueKind::kActivation, {}, {}});
  graph.inputs = {left, right};
  graph.outputs = {result};
  Op added;
  added.name = added.origin_name = "op";
  added.type = added.origin_type = op.type;
  added.inputs = {left, right};
  added.outputs = {result};
  graph.add_op(std::move(added));
  return graph_bytes(graph, op.type);
}

Status add_matmuls(const std::vector<DType>& dtypes, const std::vector<std::int64_t>& sizes,
                   MeasureRequest& request, bool for_gpu = false) {
  for (DType dtype : dtypes) {
    for (std::int64_t n : sizes) {
      TimedOp op{"MatMul", "", dtype, {n, n}, {n, n}, 0, 0};
      op.flops = 2.0 * static_cast<double>(n * n * n);
      op.bytes = 3.0 * static_cast<double>(n * n * size_of(dtype));
      AUTOPAR_TRY(model, model_of(op, {n, n}));
      op.model = std::move(model);
      op.for_gpu = for_gpu;
      request.ops.push_back(std::move(op));
    }
  }
  return Ok{};
}

// Sums of matrices, which are as fast as memory is. (Vectors are copied before they are fed.)
Status add_sums(const std::vector<Bytes>& sizes, MeasureRequest& request, bool for_gpu = false) {
  for (Bytes size : sizes) {
    const Shape shape = {size / kKiB, kKiB / 4};
    TimedOp op{"Add", "", DType::kFloat32, shape, shape, 0, 3.0 * static_cast<double>(size)};
    AUTOPAR_TRY(model, model_of(op, shape));
    op.model = std::move(model);
    op.for_gpu = for_gpu;
    request.ops.push_back(std::move(op));
  }
  return Ok{};
}

Result<MeasureRequest> request_of(const CalibrateOptions& options, const CommonOptions& common) {
  MeasureRequest request;
  request.threads = common.threads;
  request.timeout = options.timeout;
  if (options.quick) {
    request.sizes = {kKiB, 16 * kKiB, 256 * kKiB};
    request.rounds = 3;
    request.round_time = 2e-4;
    request.sample_time = 1;
    AUTOPAR_RETURN_IF_ERROR(add_matmuls({DType::kFloat32}, {64, 128}, request));
    AUTOPAR_RETURN_IF_ERROR(add_sums({256 * kKiB, 1024 * kKiB}, request));
    AUTOPAR_RETURN_IF_ERROR(add_matmuls({DType::kFloat32}, {1024, 4096}, request, true));
    AUTOPAR_RETURN_IF_ERROR(add_sums({256 * kMiB}, request, true));
    return request;
  }
  request.sizes = {kKiB, 8 * kKiB, 64 * kKiB, 512 * kKiB, 4096 * kKiB, 16384 * kKiB};
  const std::vector<DType> dtypes = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                     DType::kBFloat16};
  AUTOPAR_RETURN_IF_ERROR(add_matmuls(dtypes, {64, 128, 256, 512}, request));
  AUTOPAR_RETURN_IF_ERROR(add_sums({64 * kKiB, kMiB, 16 * kMiB}, request));
  AUTOPAR_RETURN_IF_ERROR(add_matmuls(dtypes, {1024, 2048, 4096, 8192}, request, true));
  AUTOPAR_RETURN_IF_ERROR(add_sums({64 * kMiB, 256 * kMiB}, request, true));
  return request;
}

// What is timed: the samples of models come last.
struct Asked {
  MeasureRequest request;
  std::vector<KernelSample> samples;
  std::optional<Cluster> cluster;  // that was given
};

Result<std::optional<Cluster>> given_cluster(const CalibrateOptions& options) {
  if (options.cluster.empty()) return std::optional<Cluster>();
  if (options.models.empty()) {
    return usage_error(
        "--cluster: its links and its device stay as they are, so it goes with --model, for a "
        "profile of what the machine at hand makes of them");
  }
  AUTOPAR_TRY(file, cluster_of_option(options.cluster));
  return std::optional<Cluster>(std::move(file.cluster));
}

// What is planned of a model.
Result<ImportedModel> model_to_time(const std::string& path, const CalibrateOptions& options,
                                    const CommonOptions& common) {
  if (options.train) {
    AUTOPAR_TRY(step, make_training_step(path, options.training, common));
    return import_training_step(step, path, ImportOptions());
  }
  AUTOPAR_TRY(import, import_options_of(options.training, common));
  return import_on_batch(path, import);
}

Result<Asked> asked_for(const CalibrateOptions& options, const CommonOptions& common,
                        std::optional<Cluster> cluster, std::int64_t ranks) {
  Asked asked;
  AUTOPAR_TRY(request, request_of(options, common));
  asked.request = std::move(request);
  asked.request.times_links = !cluster;
  const std::vector<Mesh> meshes =
      cluster ? mesh_candidates(*cluster, kMostAxes) : std::vector<Mesh>{{{{"rank", ranks, 0, 1}}}};
  asked.cluster = std::move(cluster);
  std::set<std::string> known;
  for (const std::string& path : options.models) {
    AUTOPAR_TRY(model, model_to_time(path, options, common));
    AUTOPAR_TRY(samples, kernel_samples(model.graph, meshes));
    for (KernelSample& sample : samples) {
      if (!known.insert(sample.timed.model).second) continue;
      asked.request.ops.push_back(sample.timed);
      asked.samples.push_back(std::move(sample));
    }
  }
  return asked;
}

// The profile of the samples, for the cluster, and what it makes of each.
Status add_profile(const Asked& asked, const Measurements& measured, Calibration& calibration,
                   std::optional<ProfileFit>& fit) {
  if (asked.samples.empty()) return Ok{};
  const std::size_t first = measured.ops.size() - asked.samples.size();
  std::vector<Seconds> seconds;
  for (std::size_t s = first; s < measured.ops.size(); ++s) {
    const OpSample& sample = measured.ops[s];
    if (!sample.problem.empty()) {
      logging::debug("{} cannot be timed: {}", asked.request.ops[sample.op].type, sample.problem);
    }
    seconds.push_back(sample.problem.empty() ? sample.seconds.median : 0);
  }
  const auto timed = std::count_if(seconds.begin(), seconds.end(), [](Seconds s) { return s > 0; });
  if (timed < static_cast<std::ptrdiff_t>(std::size(kSampleParameters))) {
    const std::string& problem = measured.ops[first].problem;
    logging::warn(
        "warning: no profile is written, since of {} ops of the models {} can be timed here{}",
        seconds.size(), timed, problem.empty() ? "" : ": " + problem);
    return Ok{};
  }
  AUTOPAR_TRY(found, fit_samples(asked.samples, seconds, calibration.cluster));
  for (const std::string& name : kSampleParameters) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3e", *parameter_of(found.profile, name));
    AUTOPAR_RETURN_IF_ERROR(set_parameter(found.profile, name, std::strtod(text, nullptr)));
  }
  if (measured.overlap) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3f", measured.overlap->slowdown());
    found.profile.slowdown = std::strtod(text, nullptr);
  }
  calibration.cluster.profile = found.profile;
  std::size_t row = 0;
  for (std::size_t s = 0; s < seconds.size(); ++s) {
    if (seconds[s] > 0) calibration.ops[first + s] = found.after[row++];
  }
  fit = std::move(found);
  return Ok{};
}

std::string profile_text(const ProfileFit& fit) {
  char text[256];
  const Profile& p = fit.profile;
  std::snprintf(text, sizeof text,
                "  profile: launch %s, matrix.fraction %.3g, matrix.half_k %.3g, memory.fraction "
                "%.3g; kernels and models differ by a factor of %.2f from it\n",
                format_seconds(p.launch_s).c_str(), p.matrix.fraction, p.matrix.half_k,
                p.memory.fraction, std::exp(fit.error_after));
  return text;
}

std::string ratio_text(Seconds predicted, Seconds measured) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.0f %%", 100 * (predicted / measured - 1));
  return text;
}

std::string rate_text(double per_second, const char* unit) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3g %s", per_second / 1e9, unit);
  return text;
}

RunEvent bandwidths_of(const CollectiveSample& sample) {
  RunEvent event;
  event.seconds = sample.seconds.median;
  event.total_bytes = total_bytes(sample.kind, sample.input_bytes, sample.group_size);
  event.bus_factor = bus_factor(sample.kind, sample.group_size);
  return event;
}

std::string size_text(const TimedOp& op) {
  return name_of(op.dtype) + to_text(op.left) + (op.flops > 0 ? " " + to_text(op.right) : "");
}

std::string collectives_table(const Measurements& measured, const Calibration& calibration) {
  TextTable table{
      {{"collective", "ranks", "bytes", "median", "minimum", "fitted", "", "algbw", "busbw"}},
      {false, true, true, true, true, true, true, true, true}};
  for (std::size_t s = 0; s < measured.collectives.size(); ++s) {
    const CollectiveSample& sample = measured.collectives[s];
    const RunEvent event = bandwidths_of(sample);
    table.rows.push_back(
        {name_of(sample.kind),
         std::to_string(sample.group_size) + " of " + std::to_string(sample.groups.size()),
         format_bytes(event.total_bytes), format_seconds(sample.seconds.median),
         format_seconds(sample.seconds.minimum), format_seconds(calibration.collectives[s]),
         ratio_text(calibration.collectives[s], sample.seconds.median),
         rate_text(event.algorithm_bandwidth(), "GB/s"), rate_text(event.bus_bandwidth(), "GB/s")});
  }
  return to_text(table);
}

std::string ops_table(const MeasureRequest& request, const Measurements& measured,
                      const Calibration& calibration) {
  TextTable table{{{"op", "", "median", "minimum", "fitted", "", "rate"}},
                  {false, false, true, true, true, true, true}};
  for (std::size_t s = 0; s < measured.ops.size(); ++s) {
    const OpSample& sample = measured.ops[s];
    const TimedOp& op = request.ops[sample.op];
    if (!sample.problem.empty()) {
      table.rows.push_back({op.type, size_text(op), "cannot be run"});
      continue;
    }
    const Seconds median = sample.seconds.median;
    table.rows.push_back(
        {op.type, size_text(op), format_seconds(median), format_seconds(sample.seconds.minimum),
         format_seconds(calibration.ops[s]), ratio_text(calibration.ops[s], median),
         op.flops > 0 ? rate_text(op.flops / median, "GFLOP/s")
                      : rate_text(op.bytes / median, "GB/s")});
  }
  return to_text(table);
}

std::string overlap_text(const MeasureRequest& request, const Measurements& measured) {
  if (!measured.overlap) return "";
  const OverlapSample& overlap = *measured.overlap;
  const TimedOp& op = request.ops[overlap.op];
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.3g", overlap.slowdown());
  return "  " + op.type + " " + size_text(op) + " takes " + format_seconds(overlap.beside) +
         " beside " + name_of(overlap.kind) + " of " +
         format_bytes(static_cast<Bytes>(overlap.bytes)) + ", " + format_seconds(overlap.alone) +
         " alone: compute loses " + loss + " s for each second of it\n";
}

std::string tiers_table(const Cluster& cluster) {
  TextTable table{{{"tier", "size", "latency", "bandwidth"}}, {false, true, true, true}};
  for (const Tier& tier : cluster.tiers) {
    table.rows.push_back({tier.name, std::to_string(tier.size), format_seconds(tier.latency_s),
                          rate_text(tier.bandwidth_bytes_per_s, "GB/s")});
  }
  return to_text(table);
}

std::string table_of(const MeasureRequest& request, const Measurements& measured,
                     const Calibration& calibration) {
  char residual[32];
  std::snprintf(residual, sizeof residual, "%.2f", std::exp(calibration.residual));
  const std::string ops = ops_table(request, measured, calibration) + "\n";
  const std::string overlap = overlap_text(request, measured);
  if (measured.collectives.empty()) return ops + overlap;
  return collectives_table(measured, calibration) + "\n" + ops + tiers_table(calibration.cluster) +
         "\n" + overlap + "  fitted and measured collectives differ by a factor of " + residual +
         " (root mean square of its logarithm); medians of " + std::to_string(request.rounds) +
         " rounds\n";
}

nlohmann::ordered_json spread_of(const Spread& spread) {
  return {{"minimum", spread.minimum}, {"median", spread.median}, {"mean", spread.mean}};
}

std::string json_of(const MeasureRequest& request, const Measurements& measured,
                    const Calibration& calibration) {
  nlohmann::ordered_json j = {{"format", "autopar-calibration"}, {"version", 1}};
  j["hosts"] = measured.hosts;
  j["collectives"] = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < measured.collectives.size(); ++s) {
    const CollectiveSample& sample = measured.collectives[s];
    const RunEvent event = bandwidths_of(sample);
    j["collectives"].push_back({{"kind", name_of(sample.kind)},
                                {"group_size", sample.group_size},
                                {"ranks", sample.groups.size()},
                                {"bytes", event.total_bytes},
                                {"seconds", spread_of(sample.seconds)},
                                {"fitted_seconds", calibration.collectives[s]},
                                {"algorithm_bandwidth_bytes_per_s", event.algorithm_bandwidth()},
                                {"bus_bandwidth_bytes_per_s", event.bus_bandwidth()}});
  }
  j["ops"] = nlohmann::ordered_json::array();
  for (std::size_t s = 0; s < measured.ops.size(); ++s) {
    const TimedOp& op = request.ops[measured.ops[s].op];
    nlohmann::ordered_json row = {{"type", op.type},
                                  {"dtype", name_of(op.dtype)},
                                  {"left", op.left},
                                  {"right", op.right},
                                  {"flops", op.flops},
                                  {"bytes", op.bytes},
                                  {"problem", measured.ops[s].problem}};
    if (measured.ops[s].problem.empty()) {
      row["seconds"] = spread_of(measured.ops[s].seconds);
      row["fitted_seconds"] = calibration.ops[s];
    }
    j["ops"].push_back(std::move(row));
  }
  if (measured.overlap) {
    j["overlap"] = {{"op", measured.overlap->op},
                    {"collective", name_of(measured.overlap->kind)},
                    {"bytes", measured.overlap->bytes},
                    {"alone_seconds", measured.overlap->alone},
                    {"beside_seconds", measured.overlap->beside},
                    {"slowdown", measured.overlap->slowdown()}};
  }
  j["residual"] = calibration.residual;
  j["cluster"] = nlohmann::ordered_json::parse(cluster_to_json(calibration.cluster));
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string default_name(const Measurements& measured) {
  const std::set<std::string> machines(measured.hosts.begin(), measured.hosts.end());
  return std::to_string(measured.hosts.size()) + " " + measured.ranks_are + " on " +
         (machines.size() == 1 ? *machines.begin() : std::to_string(machines.size()) + " machines");
}

// A profile has fractions of the peaks that the given cluster says.
void warn_where_faster(const Device& measured, const Cluster& given) {
  for (const auto& [dtype, reached] : measured.peak_flops_per_s) {
    const auto peak = given.device.peak_flops_per_s.find(dtype);
    if (peak == given.device.peak_flops_per_s.end() || reached < kMuchFaster * peak->second) {
      continue;
    }
    logging::warn(
        "warning: products of {} reach {} FLOP/s here, and the cluster '{}' says that its device "
        "does {} at most: predictions will be too slow; without --cluster the peaks are measured",
        dtype, reached, given.name, peak->second);
  }
}

// The rank that prints writes the cluster.
Result<int> finish(const CalibrateOptions& options, const CommonOptions& common, const Asked& asked,
                   const Measurements& measured) {
  const MeasureRequest& request = asked.request;
  logging::debug("{} collectives and {} ops timed on {} {}", measured.collectives.size(),
                 measured.ops.size(), measured.hosts.size(), measured.ranks_are);
  Calibration calibration = fit_cluster(measured, request.ops, asked.cluster);
  std::optional<ProfileFit> fit;
  AUTOPAR_RETURN_IF_ERROR(add_profile(asked, measured, calibration, fit));
  Cluster& cluster = calibration.cluster;
  if (asked.cluster) {
    warn_where_faster(measured_device(measured, request.ops), cluster);
    if (!options.name.empty()) cluster.name = options.name;
  } else {
    cluster.name = options.name.empty() ? default_name(measured) : options.name;
    cluster.device.name = "one of " + std::to_string(measured.hosts.size()) + " ranks";
  }
  if (!calibration.problem.empty()) logging::warn("warning: {}", calibration.problem);
  if (options.ranks_by == "nccl" && !measured.on_gpus) {
    logging::warn(
        "warning: collectives are timed with their copies from host memory to the GPU and back, "
        "ops and memory on the CPU: as a run is whose local ops ONNX Runtime has on the CPU");
  }
  if (const Status valid = verify(cluster); !valid) {
    return runtime_error("what was measured makes no cluster: " + valid.error().message);
  }
  AUTOPAR_TRY(earlier, earlier_cluster(options.output));
  AUTOPAR_RETURN_IF_ERROR(write_file_atomically(options.output, cluster_to_json(cluster)));
  if (!earlier.empty()) logging::info("{}: {} that lay there is replaced", options.output, earlier);
  if (common.json || !common.quiet) {
    std::cout << (common.json
                      ? json_of(request, measured, calibration)
                      : table_of(request, measured, calibration) + (fit ? profile_text(*fit) : ""));
  }
  std::cout.flush();
  if (!common.json) logging::info("wrote {}", options.output);
  return 0;
}

// What must not be replaced, or cannot be written, is told before anything is measured.
Status check_output(const std::string& path) {
  AUTOPAR_RETURN_IF_ERROR(check_writable(path));
  const auto earlier = earlier_cluster(path);
  return earlier ? Status(Ok{}) : Status(earlier.error());
}

Result<int> calibrate_threads(const CalibrateOptions& options, const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(check_output(options.output));
  const auto cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  AUTOPAR_TRY(cluster, given_cluster(options));
  int ranks = options.ranks;
  if (ranks == 0) {
    ranks = std::max(2, cores);
    if (cluster)
      ranks = static_cast<int>(std::clamp<std::int64_t>(cluster->device_count(), 2, kMostThreads));
  }
  AUTOPAR_TRY(asked, asked_for(options, common, std::move(cluster), ranks));
  AUTOPAR_TRY(measured, measure_threads(ranks, asked.request));
  return finish(options, common, asked, measured);
}

Result<int> calibrate_in_world(ProcessWorld& world, const CalibrateOptions& options,
                               const CommonOptions& common) {
  if (options.ranks != 0 && options.ranks != world.size()) {
    return usage_error("--ranks " + std::to_string(options.ranks) + ": but " +
                       std::to_string(world.size()) +
                       " processes were started; the launcher says how many there are");
  }
  if (world.rank() == 0) {
    AUTOPAR_RETURN_IF_ERROR(check_output(options.output));
  }
  AUTOPAR_TRY(cluster, given_cluster(options));
  AUTOPAR_TRY(asked, asked_for(options, common, std::move(cluster), world.size()));
  AUTOPAR_TRY(measured, world.measure(asked.request));
  if (world.rank() != 0) return 0;
  return finish(options, common, asked, measured);
}

Result<int> run(const CLI::App& app, const CalibrateOptions& options, const CommonOptions& common) {
  if (!options.train) AUTOPAR_RETURN_IF_ERROR(refuse_training_options(app));
  if (options.models.empty()) {
    AUTOPAR_RETURN_IF_ERROR(refuse_options(
        app, {"--train", "--batch", "--batch-dim", "--data-inputs"}, "goes with --model"));
  }
  if (options.ranks_by == "threads") return calibrate_threads(options, common);
  return in_processes(options.ranks_by, options.timeout, [&](ProcessWorld& world) {
    return calibrate_in_world(world, options, common);
  });
}

}  // namespace

Run add_calibrate(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<CalibrateOptions>();
  app.option_defaults()->group(group::kReading);
  app.add_option("--cluster", options->cluster,
                 "cluster.json, or the name of a ready-made cluster, that plans are meant for\n"
                 "With --model: kernels are split as over its meshes, and what is written is this "
                 "cluster, its links and its device, with the profile that was measured. By "
                 "threads as many ranks are timed as it has devices (up to 64).")
      ->type_name("CLUSTER");
  app.option_defaults()->group(group::kOutput);
  app.add_option("-o,--output", options->output, "the cluster file to write (default cluster.json)")
      ->type_name("FILE");
  app.add_option("--name", options->name, "the cluster's name (default: what was measured)");
  app.option_defaults()->group(group::kRanks);
  app.add_option("--ranks-by", options->ranks_by, "what a rank is (default threads)")
      ->check(CLI::IsMember({"threads", "mpi", "nccl"}));
  app.add_option("--ranks", options->ranks, "threads: how many (default: one per core, at least 2)")
      ->check(whole_number(2, 1024));
  app.add_option("--timeout", options->timeout,
                 "how long a collective may wait for other ranks: 90s, 2m (default 60s)")
      ->transform(duration())
      ->type_name("TIME");
  app.option_defaults()->group(group::kTimes);
  app.add_option(
         "--model", options->models,
         "also time this model and its kernels, for a profile in the file; may be repeated\n"
         "The model as a whole, and of each type of op up to four sizes, whole and split "
         "over the ranks, on all ranks at the same time. Needs the data of constants only; "
         "weights are made up.")
      ->type_name("FILE");
  app.add_flag("--quick", options->quick, "fewer and smaller sizes: seconds, but less exact");
  add_training_options(app, options->training);
  app.add_flag("--train", options->train,
               "time the training step that `search --train` makes of the model, with the same "
               "options\n"
               "What is calibrated on the forward model says little of a step's many small "
               "kernels.");
  return [&app, options, &common]() -> Result<int> {
    if (options->train) {
      AUTOPAR_RETURN_IF_ERROR(settle_training_options(app, options->training));
    }
    return run(app, *options, common);
  };
}

}  // namespace autopar::cli
