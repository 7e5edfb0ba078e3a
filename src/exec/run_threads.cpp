#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <system_error>
#include <thread>

#include "exec/generate.hpp"
#include "exec/rank.hpp"
#include "exec/session.hpp"
#include "exec/thread_world.hpp"

namespace autopar {

namespace {

constexpr std::int64_t kMaxRanks = 1024;  // each is a thread

using Ranks = std::vector<std::unique_ptr<Rank>>;
using Tensors = std::map<std::string, Tensor>;

int thread_count(const RunRequest& request) {
  if (request.threads > 0) return request.threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Status verify(const RunRequest& request) {
  if (request.mesh.size() < 1 || request.mesh.size() > kMaxRanks) {
    return input_error(request.plan_path + ": the mesh " + to_text(request.mesh) + " has " +
                       std::to_string(request.mesh.size()) +
                       " ranks; as threads of one process 1 to " + std::to_string(kMaxRanks) +
                       " can run");
  }
  for (const auto* values : {&request.inputs, &request.outputs}) {
    for (const BoundaryValue& value : *values) {
      if (auto status = verify(value.spec, value.shape, request.mesh); !status) {
        return input_error(request.plan_path + ": '" + value.name + "': " + status.error().message);
      }
      if (value.spec.partial.empty()) continue;
      return input_error(request.plan_path + ": '" + value.name +
                         "' is a partial sum; inputs and outputs of a plan must not be");
    }
  }
  return Ok{};
}

Result<Tensors> whole_inputs(const RunRequest& request) {
  Tensors tensors;
  for (const BoundaryValue& input : request.inputs) {
    const auto given = request.data.find(input.name);
    if (given == request.data.end()) {
      tensors[input.name] = generate(input.name, input.dtype, input.shape, request.seed);
      continue;
    }
    const Tensor& tensor = given->second;
    if (tensor.dtype != input.dtype || tensor.shape != input.shape) {
      return input_error("data for input '" + input.name + "': expected " + name_of(input.dtype) +
                         to_text(input.shape) + ", found " + name_of(tensor.dtype) +
                         to_text(tensor.shape));
    }
    tensors[input.name] = tensor;
  }
  return tensors;
}

void warn_of_unknown(const Tensors& tensors, const std::vector<BoundaryValue>& values,
                     const std::string& what, std::vector<std::string>& warnings) {
  for (const auto& entry : tensors) {
    if (std::any_of(values.begin(), values.end(),
                    [&](const BoundaryValue& v) { return v.name == entry.first; })) {
      continue;
    }
    warnings.push_back("data for '" + entry.first + "' is not used: the plan has no " + what +
                       " of that name");
  }
}

// Runs work(0) .. work(count-1) on a few threads.
void for_each_index(std::size_t count, std::size_t threads,
                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> workers;
  try {
    for (std::size_t t = 1; t < std::min(count, threads); ++t) workers.emplace_back(loop);
  } catch (const std::system_error&) {
    // Fewer threads do the work too.
  }
  loop();
  for (std::thread& worker : workers) worker.join();
}

Status open_sessions(Ranks& ranks, Ort::Env& environment, const RunRequest& request,
                     const SharedWeights& weights, const TraceFolder& traces) {
  // The first alone, so that a file that is refused is refused once.
  AUTOPAR_RETURN_IF_ERROR(open_session(*ranks[0], environment, request, weights, traces));
  std::vector<std::optional<Error>> errors(ranks.size());
  for_each_index(ranks.size() - 1, static_cast<std::size_t>(thread_count(request)),
                 [&](std::size_t i) {
                   auto status = open_session(*ranks[i + 1], environment, request, weights, traces);
                   if (!status) errors[i + 1] = status.error();
                 });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  return Ok{};
}

// Runs all ranks, each in its thread. A rank that fails tells the others, which then stop: in a
// collective by the world, between local ops by the terminate flag.
Status run_ranks(Ranks& ranks, ThreadWorld& world,
                 const std::function<void(Rank&, const std::function<void()>&)>& run) {
  std::vector<std::string> failures(ranks.size());  // a rank's own, not because another failed
  const auto body = [&](std::size_t r) {
    Rank& rank = *ranks[r];
    try {
      run(rank, [&world, r] { world.finish(static_cast<int>(r)); });
    } catch (const std::exception& exception) {
      const std::string what = exception.what();
      const bool told = rank.collectives.times().stopped ||
                        (world.failure() && what.find("terminate flag") != std::string::npos);
      if (!told) failures[r] = "rank " + std::to_string(r) + " failed: " + what;
      rank.communicator->abort(failures[r]);
      for (const auto& other : ranks) other->run_options.SetTerminate();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    try {
      threads.emplace_back(body, r);
    } catch (const std::system_error& error) {
      failures[r] = "rank " + std::to_string(r) + " cannot be started as a thread (" +
                    error.what() + "); use fewer ranks or allow more threads (ulimit -u)";
      world.abort(failures[r]);
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) {
    if (!failure.empty()) return runtime_error(failure);
  }
  if (auto failure = world.failure()) return runtime_error(*failure);
  return Ok{};
}

// By kind, slowest first. Collectives are timed by the ops themselves, so that waiting is seen.
std::vector<TimedKind> times_of(Ranks& ranks, bool traced) {
  std::map<std::string, TimedKind> by_kind;
  const double share = 1.0 / static_cast<double>(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& collectives = ranks[r]->collectives.times().by_kind;
    for (const auto& [kind, entry] : collectives) {
      TimedKind& timed = by_kind[kind];
      timed.collective = true;
      if (r == 0) timed.count = entry.count;
      timed.seconds += share * entry.seconds;
      timed.bytes += share * entry.bytes;
    }
    if (!traced) continue;
    for (const auto& [kind, entry] : read_trace(*ranks[r])) {
      if (collectives.count(kind) != 0) continue;
      TimedKind& timed = by_kind[kind];
      if (r == 0) timed.count = entry.count;
      timed.seconds += share * entry.seconds;
    }
  }
  std::vector<TimedKind> times;
  for (auto& [kind, timed] : by_kind) {
    timed.kind = kind;
    times.push_back(timed);
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

void compare_all(const RunRequest& request, const Ranks& ranks, RunReport& report) {
  report.passed = true;
  for (std::size_t o = 0; o < request.outputs.size(); ++o) {
    std::vector<RankDifference> differences;
    for (const auto& rank : ranks) differences.push_back(rank->differences[o]);
    report.outputs.push_back(combine(request.outputs[o], differences));
    report.passed = report.passed && report.outputs.back().matches;
  }
}

void warn_of_order(const Ranks& ranks, std::vector<std::string>& warnings) {
  for (const auto& rank : ranks) {
    const std::string& found = rank->collectives.times().out_of_order;
    if (found.empty()) continue;
    warnings.push_back("rank " + std::to_string(rank->communicator->rank()) + ": " + found +
                       ": the plan does not chain its collectives");
    return;
  }
}

Result<RunReport> run_checked(const RunRequest& request) {
  RunReport report;
  AUTOPAR_TRY(inputs, whole_inputs(request));
  warn_of_unknown(request.data, request.inputs, "input", report.warnings);
  warn_of_unknown(request.expected, request.outputs, "output", report.warnings);

  Ort::Env environment = make_environment(thread_count(request));
  Reference reference;
  if (!request.model_path.empty()) {
    AUTOPAR_TRY(result, run_model(environment, request.model_path, inputs, request.optimize));
    reference = std::move(result);
    report.reference_wall = reference.wall;
  }
  const Expected expected{expect(request.expected), expect(reference.outputs)};

  const TraceFolder traces(request.profile);
  const bool traced = !traces.path().empty();
  if (request.profile && !traced) {
    report.warnings.push_back(
        "no times of local ops: the folder for temporary files (TMPDIR) cannot be written");
  }
  const SharedWeights weights = share_weights(request.weights);  // outlives the ranks' sessions
  ThreadWorld world(static_cast<int>(request.mesh.size()), request.timeout);
  Ranks ranks;
  for (int r = 0; r < world.size(); ++r) {
    ranks.push_back(std::make_unique<Rank>(std::make_unique<ThreadCommunicator>(world, r)));
  }
  AUTOPAR_RETURN_IF_ERROR(open_sessions(ranks, environment, request, weights, traces));

  KeptOutputs kept;
  const auto begin = std::chrono::steady_clock::now();
  AUTOPAR_RETURN_IF_ERROR(run_ranks(ranks, world, [&](Rank& rank, const auto& after_run) {
    run_rank(rank, request, inputs, expected, after_run, request.keep_outputs ? &kept : nullptr);
  }));
  for (const auto& rank : ranks) {
    const std::chrono::duration<double> time = rank->finished - begin;
    report.wall = std::max(report.wall, time.count());
  }
  report.ranks = world.size();
  compare_all(request, ranks, report);
  report.times = times_of(ranks, traced);
  report.values = kept.take();
  warn_of_order(ranks, report.warnings);
  return report;
}

}  // namespace

Result<RunReport> run_threads(const RunRequest& request) {
  AUTOPAR_RETURN_IF_ERROR(verify(request));
  AUTOPAR_RETURN_IF_ERROR(open_onnx_runtime());
  try {
    return run_checked(request);
  } catch (const std::exception& exception) {
    return runtime_error(request.plan_path + ": " + exception.what());
  }
}

}  // namespace autopar
