#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "exec/blocks.hpp"
#include "exec/collective_ops.hpp"
#include "exec/generate.hpp"
#include "exec/profile.hpp"
#include "exec/session.hpp"
#include "exec/thread_world.hpp"
#include "exec/verdict.hpp"

namespace autopar {

namespace {

constexpr std::int64_t kMaxRanks = 1024;  // each is a thread

// A folder of our own for ONNX Runtime's traces, gone at the end.
class TraceFolder {
 public:
  explicit TraceFolder(bool wanted) {
    if (!wanted) return;
    std::error_code error;
    std::string name =
        (std::filesystem::temp_directory_path(error) / "autopar-trace-XXXXXX").string();
    if (!error && mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TraceFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;
  const std::string& path() const { return path_; }  // empty: there is none

 private:
  std::string path_;
};

// One rank: its end of the communication, its session, what it is fed and what came of it.
struct Rank {
  Rank(ThreadWorld& world, int index) : communicator(world, index), collectives(communicator) {}
  ThreadCommunicator communicator;
  CollectiveOps collectives;
  std::optional<Ort::Session> session;
  std::vector<Declared> inputs;
  std::vector<Declared> outputs;
  Ort::RunOptions run_options;
  std::vector<RankDifference> differences;  // by output of the request
  std::map<std::string, KernelTimes> kernels;
  std::string failure;  // of its own, not because another rank failed
  std::string refusal;  // the session could not be made
};

using Ranks = std::vector<std::unique_ptr<Rank>>;
using Tensors = std::map<std::string, Tensor>;

std::string type_text(DType dtype, const Shape& shape) { return name_of(dtype) + to_text(shape); }

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
      if (!value.spec.partial.empty()) {
        return input_error(request.plan_path + ": '" + value.name +
                           "' is a partial sum; inputs and outputs of a plan must not be");
      }
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
      return input_error("data for input '" + input.name + "': expected " +
                         type_text(input.dtype, input.shape) + ", found " +
                         type_text(tensor.dtype, tensor.shape));
    }
    tensors[input.name] = tensor;
  }
  return tensors;
}

void warn_of_unknown(const Tensors& tensors, const std::vector<BoundaryValue>& values,
                     const std::string& what, RunReport& report) {
  for (const auto& [name, tensor] : tensors) {
    const bool known = std::any_of(values.begin(), values.end(),
                                   [&name = name](const auto& v) { return v.name == name; });
    if (!known)
      report.warnings.push_back("data for '" + name + "' is not used: the plan has no " + what +
                                " of that name");
  }
}

// The file's inputs (or outputs) are those of the request, with the local shapes of their specs.
Status check_boundary(const RunRequest& request, const std::vector<Declared>& declared,
                      const std::vector<BoundaryValue>& values, const std::string& what) {
  for (const BoundaryValue& value : values) {
    const auto at = std::find_if(declared.begin(), declared.end(),
                                 [&](const Declared& d) { return d.name == value.name; });
    if (at == declared.end()) {
      return input_error(request.plan_path + ": has no " + what + " '" + value.name + "'");
    }
    const Shape local = local_shape(value.spec, value.shape, request.mesh);
    bool fits = dtype_of(at->type) == value.dtype && at->shape.size() == local.size();
    for (std::size_t d = 0; fits && d < local.size(); ++d) {
      fits = at->shape[d] < 0 || at->shape[d] == local[d];
    }
    if (fits) continue;
    const auto dtype = dtype_of(at->type);
    return input_error(request.plan_path + ": " + what + " '" + value.name + "' is declared " +
                       (dtype ? type_text(*dtype, at->shape) : "with an unsupported type") +
                       ", but its layout " + to_text(value.spec, request.mesh) + " of " +
                       type_text(value.dtype, value.shape) + " gives " + to_text(local));
  }
  for (const Declared& d : declared) {
    if (std::none_of(values.begin(), values.end(),
                     [&](const BoundaryValue& v) { return v.name == d.name; })) {
      return input_error(request.plan_path + ": " + what + " '" + d.name +
                         "' has no layout; the plan must say how each lies");
    }
  }
  return Ok{};
}

void open_session(Rank& rank, Ort::Env& environment, const RunRequest& request,
                  const TraceFolder& traces) {
  try {
    Ort::SessionOptions options = session_options();
    rank.collectives.add_to(options);
    if (!traces.path().empty()) {
      options.EnableProfiling(
          (traces.path() + "/rank" + std::to_string(rank.communicator.rank())).c_str());
    }
    rank.session.emplace(environment, request.plan_path.c_str(), options);
    rank.inputs = inputs_of(*rank.session);
    rank.outputs = outputs_of(*rank.session);
  } catch (const Ort::Exception& exception) {
    rank.refusal = exception.what();
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
  for (std::size_t t = 1; t < std::min(count, threads); ++t) workers.emplace_back(loop);
  loop();
  for (std::thread& worker : workers) worker.join();
}

Status open_sessions(Ranks& ranks, Ort::Env& environment, const RunRequest& request,
                     const TraceFolder& traces) {
  std::error_code ignored;
  if (!std::filesystem::exists(request.plan_path, ignored)) {
    return input_error(request.plan_path + ": there is no such file");
  }
  // The first alone, so that a file that is refused is refused once.
  open_session(*ranks[0], environment, request, traces);
  if (ranks[0]->refusal.empty()) {
    AUTOPAR_RETURN_IF_ERROR(check_boundary(request, ranks[0]->inputs, request.inputs, "input"));
    AUTOPAR_RETURN_IF_ERROR(check_boundary(request, ranks[0]->outputs, request.outputs, "output"));
    for_each_index(
        ranks.size() - 1, static_cast<std::size_t>(thread_count(request)),
        [&](std::size_t i) { open_session(*ranks[i + 1], environment, request, traces); });
  }
  for (const auto& rank : ranks) {
    if (rank->refusal.empty()) continue;
    return input_error(request.plan_path + ": ONNX Runtime refuses the plan (rank " +
                       std::to_string(rank->communicator.rank()) + "): " + rank->refusal);
  }
  return Ok{};
}

// What all ranks share during the run.
struct Shared {
  const RunRequest& request;
  const Tensors& inputs;
  const Expected& expected;
  ThreadWorld& world;
  Ranks& ranks;
  std::mutex mutex;  // guards values
  Tensors values;    // kept outputs
};

void keep_output(const BoundaryValue& output, const Ort::Value& found, int rank, Shared& shared) {
  const auto type = found.GetTensorTypeAndShapeInfo();
  const Shape local = local_shape(output.spec, output.shape, shared.request.mesh);
  if (dtype_of(type.GetElementType()) != output.dtype || type.GetShape() != local) return;
  const std::lock_guard lock(shared.mutex);
  Tensor& whole = shared.values[output.name];
  if (whole.bytes.empty()) {
    whole = {output.dtype, output.shape, {}};
    whole.bytes.resize(
        static_cast<std::size_t>(element_count(output.shape) * size_of(output.dtype)));
  }
  put_slice(found.GetTensorRawData(), output.spec, shared.request.mesh, rank, whole);
}

void run_and_compare(Rank& rank, Shared& shared) {
  const RunRequest& request = shared.request;
  const int index = rank.communicator.rank();
  std::vector<Slice> slices;
  std::vector<Ort::Value> values;
  slices.reserve(rank.inputs.size());
  for (const Declared& input : rank.inputs) {
    const auto boundary = std::find_if(request.inputs.begin(), request.inputs.end(),
                                       [&](const auto& v) { return v.name == input.name; });
    const Tensor& whole = shared.inputs.at(input.name);
    slices.emplace_back(whole, boundary->spec, request.mesh, index);
    values.push_back(view_of(whole.dtype, slices.back().shape(), slices.back().data()));
  }
  const std::vector<Ort::Value> results =
      run_session(*rank.session, rank.run_options, rank.inputs, values, rank.outputs);
  shared.world.finish(index);
  for (const BoundaryValue& output : request.outputs) {
    const auto at = std::find_if(rank.outputs.begin(), rank.outputs.end(),
                                 [&](const Declared& d) { return d.name == output.name; });
    const Ort::Value& found = results[static_cast<std::size_t>(at - rank.outputs.begin())];
    rank.differences.push_back(compare_output(request, output, index, found, shared.expected));
    if (request.keep_outputs) keep_output(output, found, index, shared);
  }
}

// The body of a rank's thread. A rank that fails tells the others, which then stop: in a collective
// by the world, between local ops by the terminate flag.
void rank_thread(Rank& rank, Shared& shared) {
  const int index = rank.communicator.rank();
  try {
    run_and_compare(rank, shared);
    return;
  } catch (const std::exception& exception) {
    const std::string what = exception.what();
    const bool told = rank.collectives.times().stopped ||
                      (shared.world.failure() && what.find("terminate flag") != std::string::npos);
    if (!told) rank.failure = "rank " + std::to_string(index) + " failed: " + what;
    rank.communicator.abort(rank.failure);
  }
  for (const auto& other : shared.ranks) other->run_options.SetTerminate();
}

Status run_ranks(Shared& shared) {
  std::vector<std::thread> threads;
  for (const auto& rank : shared.ranks) {
    threads.emplace_back([&rank, &shared] { rank_thread(*rank, shared); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& rank : shared.ranks) {
    if (!rank->failure.empty()) return runtime_error(rank->failure);
  }
  if (auto failure = shared.world.failure()) return runtime_error(*failure);
  return Ok{};
}

void read_trace(Rank& rank) {
  Ort::AllocatorWithDefaultOptions allocator;
  const std::string path = rank.session->EndProfilingAllocated(allocator).get();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  rank.kernels = kernel_times(text.str());
}

std::vector<TimedKind> times_of(const Ranks& ranks) {
  std::map<std::string, TimedKind> by_kind;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto& collectives = ranks[r]->collectives.times().by_kind;
    for (const auto& [kind, entry] : collectives) {
      TimedKind& timed = by_kind[kind];
      timed.collective = true;
      if (r == 0) timed.count = entry.count;
      timed.seconds += entry.seconds;
      timed.bytes += entry.bytes;
    }
    for (const auto& [kind, entry] : ranks[r]->kernels) {
      if (collectives.count(kind) != 0) continue;  // measured by ourselves
      TimedKind& timed = by_kind[kind];
      if (r == 0) timed.count = entry.count;
      timed.seconds += entry.seconds;
    }
  }
  std::vector<TimedKind> times;
  for (auto& [kind, timed] : by_kind) {
    timed.kind = kind;
    timed.seconds /= static_cast<double>(ranks.size());
    timed.bytes /= static_cast<double>(ranks.size());
    times.push_back(timed);
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

void fill_report(Shared& shared, RunReport& report) {
  const RunRequest& request = shared.request;
  report.ranks = static_cast<int>(shared.ranks.size());
  report.passed = true;
  for (std::size_t o = 0; o < request.outputs.size(); ++o) {
    std::vector<RankDifference> differences;
    for (const auto& rank : shared.ranks) differences.push_back(rank->differences[o]);
    report.outputs.push_back(combine(request.outputs[o], differences));
    report.passed = report.passed && report.outputs.back().matches;
  }
  report.times = times_of(shared.ranks);
  report.values = std::move(shared.values);
  for (const auto& rank : shared.ranks) {
    const std::string& found = rank->collectives.times().out_of_order;
    if (found.empty()) continue;
    report.warnings.push_back("rank " + std::to_string(rank->communicator.rank()) + ": " + found +
                              ": the plan does not chain its collectives");
    break;
  }
}

Result<RunReport> run_checked(const RunRequest& request) {
  RunReport report;
  AUTOPAR_TRY(inputs, whole_inputs(request));
  warn_of_unknown(request.data, request.inputs, "input", report);
  warn_of_unknown(request.expected, request.outputs, "output", report);

  Ort::Env environment = make_environment(thread_count(request));
  Expected expected{request.expected, {}};
  if (!request.model_path.empty()) {
    AUTOPAR_TRY(reference, run_model(environment, request.model_path, inputs));
    expected.model = std::move(reference.outputs);
    report.reference_wall = reference.wall;
  }

  const TraceFolder traces(request.profile);
  if (request.profile && traces.path().empty()) {
    report.warnings.push_back(
        "no times of local ops: the folder for temporary files (TMPDIR) "
        "cannot be written");
  }
  ThreadWorld world(static_cast<int>(request.mesh.size()), request.timeout);
  Ranks ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(std::make_unique<Rank>(world, r));
  AUTOPAR_RETURN_IF_ERROR(open_sessions(ranks, environment, request, traces));

  Shared shared{request, inputs, expected, world, ranks, {}, {}};
  const auto begin = std::chrono::steady_clock::now();
  AUTOPAR_RETURN_IF_ERROR(run_ranks(shared));
  report.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!traces.path().empty()) {
    for (const auto& rank : ranks) read_trace(*rank);
  }
  fill_report(shared, report);
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
