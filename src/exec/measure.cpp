#include "exec/measure.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
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

constexpr int kMostCalls = 1000;   // in a round
constexpr int kMoreRounds = 3;     // of one call each
constexpr double kSumsBeside = 8;  // of tensors, at least, while an op is called beside
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
    const int wished = most_calls == 1 ? kMoreRounds * request_.rounds : request_.rounds;
    const double room = request_.sample_time / std::max(once * calls, 1e-9);
    const int rounds = static_cast<int>(std::clamp(room, 1.0, double(wished)));
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

// A session of a timed op, fed.
class OpRunner {
 public:
  // `gpu`: -1: on the CPU. What ONNX Runtime cannot do is `problem()`.
  OpRunner(Ort::Env& environment, const TimedOp& op, int gpu) {
    try {
      open(environment, op, gpu);
      if (const Status ran = run(); !ran) problem_ = ran.error().message;
    } catch (const std::exception& exception) {
      problem_ = exception.what();
    }
  }

  const std::string& problem() const { return problem_; }

  Status run() {
    try {
      if (bound_) {
        session_->Run(Ort::RunOptions(), *bound_);
      } else {
        run_session(*session_, Ort::RunOptions(), inputs_, values_, outputs_);
      }
    } catch (const std::exception& exception) {
      return input_error(exception.what());
    }
    return Ok{};
  }

 private:
  void open(Ort::Env& environment, const TimedOp& op, int gpu) {
    Ort::SessionOptions options = session_options(false);
    if (gpu >= 0) add_cuda_provider(options, gpu);
    const auto open = [&](const std::string& prefix) {
      if (!prefix.empty()) options.EnableProfiling(prefix.c_str());
      session_.emplace(environment, op.model.data(), op.model.size(), options);
    };
    // A run takes a trace, which costs about as much as a small op.
    op.of_model ? trace_.take(open) : open("");
    inputs_ = inputs_of(*session_);
    outputs_ = outputs_of(*session_);
    for (const Declared& input : inputs_) {
      const auto dtype = dtype_of(input.type);
      if (!dtype) throw std::invalid_argument("input '" + input.name + "' is no tensor");
      data_.push_back(filled(*dtype, input.shape));
      values_.push_back(view_of(*dtype, input.shape, data_.back().data()));
    }
    if (gpu < 0) return;
    bound_.emplace(*session_);
    const Ort::MemoryInfo there("Cuda", OrtDeviceAllocator, gpu, OrtMemTypeDefault);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      bound_->BindInput(inputs_[i].name.c_str(), values_[i]);  // copies it there
    }
    for (const Declared& output : outputs_) bound_->BindOutput(output.name.c_str(), there);
  }

  std::deque<std::string> data_;  // what values point into
  TraceFile trace_;               // outlives the session that writes it
  std::optional<Ort::Session> session_;
  std::optional<Ort::IoBinding> bound_;  // on a GPU: to what lies there
  std::vector<Declared> inputs_, outputs_;
  std::vector<Ort::Value> values_;
  std::string problem_;
};

// Errors are those of the communication; what ONNX Runtime cannot do all ranks find alike.
Status time_op(Meter& meter, Ort::Env& environment, const TimedOp& op, int gpu, OpSample& sample) {
  OpRunner runner(environment, op, gpu);
  sample.problem = runner.problem();
  AUTOPAR_TRY(any, meter.most(sample.problem.empty() ? 0 : 1));
  if (any > 0) {
    if (sample.problem.empty()) sample.problem = "another rank cannot run it";
    return Ok{};
  }
  // A whole model as `run` times it: ranks meet before each run.
  const bool is_whole = op.of_model && op.copies == 1;
  AUTOPAR_TRY(seconds, meter.time([&] { return runner.run(); }, is_whole ? 1 : kMostCalls));
  const double copies = op.copies;
  sample.seconds = {seconds.minimum / copies, seconds.median / copies, seconds.mean / copies};
  return Ok{};
}

// The largest product of float32 that was timed.
const OpSample* largest_product(const std::vector<TimedOp>& ops,
                                const std::vector<OpSample>& samples) {
  const OpSample* largest = nullptr;
  for (const OpSample& sample : samples) {
    const TimedOp& op = ops[sample.op];
    if (op.of_model || op.flops <= 0 || op.dtype != DType::kFloat32 || !sample.problem.empty()) {
      continue;
    }
    if (largest == nullptr || op.flops > ops[largest->op].flops) largest = &sample;
  }
  return largest;
}

// Calls of an op in a thread of its own, while the rank's own thread sums tensors over all ranks.
class OverlapMeter {
 public:
  OverlapMeter(Meter& meter, OpRunner& runner, CollectiveCall sum, const void* from, void* to)
      : meter_(meter), runner_(runner), sum_(std::move(sum)), from_(from), to_(to) {}

  Result<Spread> sum(int most_calls) {
    return meter_.time([&] { return meter_.run(sum_, from_, to_); }, most_calls);
  }

  // A call of the op on the slowest rank; beside sums these go on until the calls of every rank
  // have ended.
  Result<Seconds> call(int calls, bool beside_sums) {
    AUTOPAR_TRY(met, meter_.most(0));
    static_cast<void>(met);
    std::atomic<bool> done = false;
    Seconds taken = 0;
    std::thread caller([&] {
      const Seconds begin = steady_seconds();
      for (int c = 0; c < calls; ++c) static_cast<void>(runner_.run());
      taken = (steady_seconds() - begin) / calls;
      done = true;
    });
    const Status summed = beside_sums ? sum_until(done) : Status(Ok{});
    caller.join();
    AUTOPAR_RETURN_IF_ERROR(summed);
    return meter_.most(taken);
  }

 private:
  Status sum_until(const std::atomic<bool>& done) {
    while (true) {
      AUTOPAR_RETURN_IF_ERROR(meter_.run(sum_, from_, to_));
      AUTOPAR_TRY(left, meter_.most(done ? 0 : 1));
      if (left <= 0) return Ok{};
    }
  }

  Meter& meter_;
  OpRunner& runner_;
  CollectiveCall sum_;
  const void* from_;
  void* to_;
};

Status time_overlap(Meter& meter, Ort::Env& environment, const MeasureRequest& request,
                    GpuCommunicator* gpu, Measurements& measurements) {
  const OpSample* product = largest_product(request.ops, measurements.ops);
  if (product == nullptr) return Ok{};
  OpRunner runner(environment, request.ops[product->op], gpu == nullptr ? -1 : gpu->gpu());
  AUTOPAR_TRY(any, meter.most(runner.problem().empty() ? 0 : 1));
  if (any > 0) return Ok{};
  const std::int64_t ranks = meter.everyone().group_size;
  const Bytes elements = (request.sizes.back() / 4 + ranks - 1) / ranks * ranks;
  CollectiveCall sum =
      meter.call(CollectiveKind::kAllReduce, meter.everyone(), DType::kFloat32, elements);
  const std::vector<float> input(static_cast<std::size_t>(elements), 1.0f);
  std::vector<float> output(input.size());
  const void* from = input.data();
  void* to = output.data();
  if (gpu != nullptr) {
    AUTOPAR_TRY(room, gpu->gpu_room(input.size() * sizeof(float), output.size() * sizeof(float)));
    from = room.input, to = room.output, sum.stream = room.stream;
  }
  OverlapMeter overlap(meter, runner, std::move(sum), from, to);
  AUTOPAR_TRY(summing, overlap.sum(kMostCalls));
  // Long beside a sum, so that what is at its ends does not count.
  const double wished = std::max(request.round_time, kSumsBeside * summing.median);
  const int calls = static_cast<int>(
      std::clamp(std::ceil(wished / product->seconds.median), 1.0, double(kMostCalls)));
  std::vector<Seconds> alone, beside;
  for (int r = 0; r < request.rounds; ++r) {
    for (std::vector<Seconds>* rounds : {&alone, &beside}) {
      AUTOPAR_TRY(seconds, overlap.call(calls, rounds == &beside));
      rounds->push_back(seconds);
    }
  }
  measurements.overlap =
      OverlapSample{product->op, CollectiveKind::kAllReduce, 4 * static_cast<double>(elements),
                    spread_of(alone).median, spread_of(beside).median};
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
  if (communicator.size() > 1 && request.times_links) {
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
  if (communicator.size() > 1) {
    AUTOPAR_RETURN_IF_ERROR(time_overlap(meter, environment, request, gpu, measurements));
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
