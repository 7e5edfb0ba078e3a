#include "exec/measure.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <thread>

#include "autopar/errors.hpp"
#include "exec/collective_math.hpp"
#include "exec/cuda_provider.hpp"
#include "exec/machine.hpp"
#include "exec/nccl/nccl.hpp"
#include "exec/profile.hpp"
#include "exec/request.hpp"
#include "exec/session.hpp"
#include "exec/tensors.hpp"
#include "exec/thread_world.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

constexpr int kMostCalls = 1000;  // in a round
constexpr int kMoreRounds = 3;    // of one call each
constexpr CollectiveKind kTimedKinds[] = {
    CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
    CollectiveKind::kAllToAll,  CollectiveKind::kBroadcast,
};

// Memory of this machine.
double physical_memory() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// One rank of the measurement. Whatever decides how often something is called comes out of a
// collective, so that all ranks decide alike.
class Meter {
 public:
  Meter(Communicator& communicator, const MeasureRequest& request)
      : communicator_(communicator), request_(request) {
    everyone_.groups.resize(static_cast<std::size_t>(communicator.size()));
    std::iota(everyone_.groups.begin(), everyone_.groups.end(), 0);
    everyone_.group_size = communicator.size();
  }

  const GroupPartition& everyone() const { return everyone_; }

  CollectiveCall call(CollectiveKind kind, const GroupPartition& partition, DType dtype,
                      std::int64_t elements) const {
    CollectiveCall made;
    made.kind = kind;
    made.op_name = "calibrate";
    made.dtype = dtype;
    made.reduce_op = "sum";
    const auto n = static_cast<std::size_t>(partition.group_size);
    const auto self = static_cast<std::size_t>(
        std::find(partition.groups.begin(), partition.groups.end(), communicator_.rank()) -
        partition.groups.begin());
    const auto first = partition.groups.begin() + static_cast<std::ptrdiff_t>(self - self % n);
    made.group.assign(first, first + static_cast<std::ptrdiff_t>(n));
    made.position = static_cast<int>(self % n);
    made.input_shape = made.output_shape = {elements};
    const bool scatters = kind == CollectiveKind::kReduceScatter;
    if (kind == CollectiveKind::kAllGather) made.output_shape[0] *= partition.group_size;
    if (scatters) made.output_shape[0] /= partition.group_size;
    return made;
  }

  Status run(CollectiveCall& call, const void* input, void* output) {
    call.seq = next_seq_++;
    return communicator_.run(call, input, output);
  }

  // `own` of every rank, by rank.
  template <class Number>
  Result<std::vector<Number>> gather(const std::vector<Number>& own, DType dtype) {
    CollectiveCall gathering =
        call(CollectiveKind::kAllGather, everyone_, dtype, static_cast<std::int64_t>(own.size()));
    std::vector<Number> all(own.size() * static_cast<std::size_t>(communicator_.size()));
    AUTOPAR_RETURN_IF_ERROR(run(gathering, own.data(), all.data()));
    return all;
  }
  Result<double> most(double own) {
    AUTOPAR_TRY(all, gather(std::vector<double>{own}, DType::kFloat64));
    return *std::max_element(all.begin(), all.end());
  }

  // The time of a call of `work`, over the rounds.
  Result<Spread> time(const std::function<Status()>& work, int most_calls = kMostCalls) {
    AUTOPAR_RETURN_IF_ERROR(work());  // what is set up at the first call
    AUTOPAR_TRY(once, round(work, 1));
    const double wanted = std::ceil(request_.round_time / std::max(once, 1e-9));
    const int calls = static_cast<int>(std::clamp(wanted, 1.0, double(most_calls)));
    std::vector<Seconds> seconds;
    const int rounds = most_calls == 1 ? kMoreRounds * request_.rounds : request_.rounds;
    for (int r = 0; r < rounds; ++r) {
      AUTOPAR_TRY(mean, round(work, calls));
      seconds.push_back(mean);
    }
    return spread_of(seconds);
  }

 private:
  // All ranks begin together; of the slowest.
  Result<Seconds> round(const std::function<Status()>& work, int calls) {
    AUTOPAR_TRY(met, most(0));
    static_cast<void>(met);
    const Seconds begin = steady_seconds();
    for (int c = 0; c < calls; ++c) AUTOPAR_RETURN_IF_ERROR(work());
    return most((steady_seconds() - begin) / calls);
  }

  Communicator& communicator_;
  const MeasureRequest& request_;
  GroupPartition everyone_;
  std::int64_t next_seq_ = 0;
};

// A rank's share of its machine's memory, or of its GPU's, the least of all.
Status find_memory(Meter& meter, int rank, const GpuCommunicator* gpu, Measurements& measurements) {
  const std::vector<std::string>& hosts = measurements.hosts;
  const std::string& host = hosts[static_cast<std::size_t>(rank)];
  double memory = physical_memory();
  std::vector<std::string> places = hosts;
  if (gpu != nullptr) {
    AUTOPAR_TRY(bytes, gpu->gpu_memory());
    AUTOPAR_TRY(gpus, meter.gather(std::vector<std::int64_t>{gpu->gpu()}, DType::kInt64));
    memory = static_cast<double>(bytes);
    for (std::size_t r = 0; r < places.size(); ++r) places[r] += " " + std::to_string(gpus[r]);
  }
  const std::string place = gpu == nullptr ? host : host + " " + std::to_string(gpu->gpu());
  const auto here = std::count(places.begin(), places.end(), place);
  AUTOPAR_TRY(least, meter.most(-memory / static_cast<double>(here)));
  measurements.memory_bytes = static_cast<Bytes>(-least);
  return Ok{};
}

// All ranks; within and across machines, or of one machine neighbours in pairs.
std::vector<GroupPartition> timed_partitions(const GroupPartition& everyone,
                                             const std::vector<Tier>& tiers) {
  std::vector<GroupPartition> partitions = {everyone};
  const std::int64_t ranks = everyone.group_size;
  const std::int64_t inner = tiers.size() > 1 ? tiers[0].size : 2;
  if (inner == ranks || ranks % inner != 0) return partitions;
  partitions.push_back({everyone.groups, inner});
  if (tiers.size() < 2) return partitions;
  GroupPartition across{{}, ranks / inner};
  for (std::int64_t i = 0; i < inner; ++i) {
    for (std::int64_t o = 0; o < ranks / inner; ++o) across.groups.push_back(o * inner + i);
  }
  partitions.push_back(across);
  return partitions;
}

Status time_collectives(Meter& meter, const MeasureRequest& request,
                        const std::vector<GroupPartition>& partitions, GpuCommunicator* gpu,
                        Measurements& measurements) {
  for (const GroupPartition& partition : partitions) {
    const std::int64_t n = partition.group_size;
    for (CollectiveKind kind : kTimedKinds) {
      for (Bytes size : request.sizes) {
        const Bytes part = (size + 4 * n - 1) / (4 * n);  // elements
        const Bytes elements = kind == CollectiveKind::kAllGather ? part : part * n;
        CollectiveCall call = meter.call(kind, partition, DType::kFloat32, elements);
        const std::vector<float> input(static_cast<std::size_t>(elements), 1.0f);
        std::vector<float> output(static_cast<std::size_t>(element_count(call.output_shape)));
        const void* from = input.data();
        void* to = output.data();
        if (gpu != nullptr) {
          AUTOPAR_TRY(room,
                      gpu->gpu_room(input.size() * sizeof(float), output.size() * sizeof(float)));
          from = room.input, to = room.output, call.stream = room.stream;
        }
        AUTOPAR_TRY(seconds, meter.time([&] { return meter.run(call, from, to); }));
        measurements.collectives.push_back(
            {kind, partition.groups, n, 4 * static_cast<double>(elements), seconds});
      }
    }
  }
  return Ok{};
}

std::string filled(DType dtype, const Shape& shape) {
  // Small numbers in any format: no slow ones, and none that overflow when summed. Integers are 0,
  // which indexes whatever there is.
  return std::string(static_cast<std::size_t>(element_count(shape) * size_of(dtype)),
                     is_floating(dtype) ? '\x3e' : '\0');
}

// Errors are those of the communication; what ONNX Runtime cannot do all ranks find alike.
Status time_op(Meter& meter, Ort::Env& environment, const TimedOp& op, int gpu, OpSample& sample) {
  std::deque<std::string> data;  // what values point into
  TraceFile trace;               // outlives the session that writes it
  std::optional<Ort::Session> session;
  std::optional<Ort::IoBinding> bound;  // on a GPU: to what lies there
  std::vector<Declared> inputs, outputs;
  std::vector<Ort::Value> values;
  const auto run = [&]() -> Status {
    try {
      if (bound) {
        session->Run(Ort::RunOptions(), *bound);
      } else {
        run_session(*session, Ort::RunOptions(), inputs, values, outputs);
      }
    } catch (const Ort::Exception& exception) {
      return input_error(exception.what());
    }
    return Ok{};
  };
  try {
    Ort::SessionOptions options = session_options(false);
    if (gpu >= 0) add_cuda_provider(options, gpu);
    const auto open = [&](const std::string& prefix) {
      if (!prefix.empty()) options.EnableProfiling(prefix.c_str());
      session.emplace(environment, op.model.data(), op.model.size(), options);
    };
    // A run takes a trace, which costs about as much as a small op.
    op.of_model ? trace.take(open) : open("");
    inputs = inputs_of(*session);
    outputs = outputs_of(*session);
    for (const Declared& input : inputs) {
      const auto dtype = dtype_of(input.type);
      if (!dtype) throw std::invalid_argument("input '" + input.name + "' is no tensor");
      data.push_back(filled(*dtype, input.shape));
      values.push_back(view_of(*dtype, input.shape, data.back().data()));
    }
    if (gpu >= 0) {
      bound.emplace(*session);
      const Ort::MemoryInfo there("Cuda", OrtDeviceAllocator, gpu, OrtMemTypeDefault);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        bound->BindInput(inputs[i].name.c_str(), values[i]);  // copies it there
      }
      for (const Declared& output : outputs) bound->BindOutput(output.name.c_str(), there);
    }
    if (const Status first = run(); !first) sample.problem = first.error().message;
  } catch (const std::exception& exception) {
    sample.problem = exception.what();
  }
  AUTOPAR_TRY(any, meter.most(sample.problem.empty() ? 0 : 1));
  if (any > 0) {
    if (sample.problem.empty()) sample.problem = "another rank cannot run it";
    return Ok{};
  }
  // A whole model as `run` times it: ranks meet before each run.
  const bool is_whole = op.of_model && op.copies == 1;
  AUTOPAR_TRY(seconds, meter.time(run, is_whole ? 1 : kMostCalls));
  const double copies = op.copies;
  sample.seconds = {seconds.minimum / copies, seconds.median / copies, seconds.mean / copies};
  return Ok{};
}

// The GPU that runs this rank's ops, where every rank has one that ONNX Runtime can use.
Result<GpuCommunicator*> gpu_of_ops(Meter& meter, Communicator& communicator) {
  auto* gpu = dynamic_cast<GpuCommunicator*>(&communicator);
  if (gpu == nullptr) return gpu;
  Ort::SessionOptions options = session_options(false);
  AUTOPAR_TRY(without, meter.most(add_cuda_provider(options, gpu->gpu()).empty() ? 0 : 1));
  return without > 0 ? nullptr : gpu;
}

}  // namespace

Result<Measurements> measure_rank(Communicator& communicator, Ort::Env& environment,
                                  const MeasureRequest& request,
                                  const std::vector<std::string>& hosts) {
  Measurements measurements;
  measurements.hosts = hosts;
  Meter meter(communicator, request);
  const auto partitions = timed_partitions(meter.everyone(), machines_of(hosts).tiers);
  AUTOPAR_RETURN_IF_ERROR(communicator.prepare(partitions));
  AUTOPAR_TRY(gpu, gpu_of_ops(meter, communicator));
  measurements.on_gpus = gpu != nullptr;
  AUTOPAR_RETURN_IF_ERROR(find_memory(meter, communicator.rank(), gpu, measurements));
  if (communicator.size() > 1) {
    AUTOPAR_RETURN_IF_ERROR(time_collectives(meter, request, partitions, gpu, measurements));
  }
  for (std::size_t o = 0; o < request.ops.size(); ++o) {
    if (request.ops[o].for_gpu && gpu == nullptr) continue;
    OpSample sample;
    sample.op = o;
    AUTOPAR_RETURN_IF_ERROR(
        time_op(meter, environment, request.ops[o], gpu == nullptr ? -1 : gpu->gpu(), sample));
    measurements.ops.push_back(std::move(sample));
  }
  return measurements;
}

Result<Measurements> measure_threads(int ranks, const MeasureRequest& request) {
  if (ranks < 2) return usage_error("--ranks: links can be measured between 2 ranks or more");
  AUTOPAR_RETURN_IF_ERROR(open_onnx_runtime());
  RunRequest cores;
  cores.threads = request.threads;
  Ort::Env environment = make_environment(thread_count(cores));
  ThreadWorld world(ranks, request.timeout);
  const std::vector<std::string> hosts(static_cast<std::size_t>(ranks), machine_name());
  std::vector<Result<Measurements>> results(static_cast<std::size_t>(ranks),
                                            runtime_error("did not run"));
  const auto body = [&](int rank) {
    Result<Measurements>& result = results[static_cast<std::size_t>(rank)];
    ThreadCommunicator communicator(world, rank);
    try {
      result = measure_rank(communicator, environment, request, hosts);
    } catch (const std::exception& exception) {
      result = failure_of("rank " + std::to_string(rank) + ": ", exception, ErrorCode::kRuntime);
    }
    if (!result) world.abort(result.error().message);
    world.finish(rank);
  };
  std::vector<std::thread> threads;
  std::string not_started;
  for (int rank = 0; rank < ranks && not_started.empty(); ++rank) {
    try {
      threads.emplace_back(body, rank);
    } catch (const std::system_error& error) {
      not_started = "rank " + std::to_string(rank) + " cannot be started as a thread (" +
                    error.what() + "); use fewer ranks or allow more threads (ulimit -u)";
      world.abort(not_started);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (!not_started.empty()) return resource_error(not_started);
  for (Result<Measurements>& result : results) {
    if (!result) return result.error();
  }
  return std::move(results[0]);
}

}  // namespace autopar
