#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "autopar/calibrate.hpp"
#include "autopar/sha256.hpp"
#include "exec/machine.hpp"
#include "exec/measure.hpp"
#include "exec/nccl/nccl.hpp"
#include "exec/process/joined.hpp"
#include "exec/process/last_words.hpp"
#include "exec/process/wire.hpp"
#include "exec/rank.hpp"
#include "exec/reference.hpp"
#include "exec/session.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

// Bytes of outputs that rank 0 asks for before the first of them is compared; one is always asked
// for.
constexpr std::size_t kAskedAtOnce = 64 << 20;

// One output of one rank on its way to rank 0.
std::string to_bytes(const Ort::Value& value) {
  const auto type = value.GetTensorTypeAndShapeInfo();
  const auto dtype = dtype_of(type.GetElementType());
  AUTOPAR_CHECK(dtype.has_value(), "an output of an unsupported type");
  const Shape shape = type.GetShape();
  WireWriter writer;
  writer.put_text(name_of(*dtype));
  writer.put<std::uint64_t>(shape.size());
  for (std::int64_t extent : shape) writer.put(extent);
  writer.put_text({static_cast<const char*>(value.GetTensorRawData()),
                   static_cast<std::size_t>(element_count(shape) * size_of(*dtype))});
  return writer.take();
}

// A view of `bytes`, which are one output.
Result<Ort::Value> value_of(const std::string& bytes, const BoundaryValue& output) {
  WireReader reader(bytes);
  const auto dtype = parse_dtype(reader.text());
  Shape shape(reader.count(sizeof(std::int64_t)));
  for (std::int64_t& extent : shape) extent = reader.number<std::int64_t>();
  const std::string_view data = reader.view();
  AUTOPAR_RETURN_IF_ERROR(reader.finish());
  // One of another type or shape than the plan says is for compare_output to tell.
  const bool is_shape = std::all_of(shape.begin(), shape.end(), [](auto n) { return n >= 0; });
  if (!dtype || !is_shape || element_count(shape) * size_of(*dtype) != std::ssize(data)) {
    return runtime_error("a rank has sent no tensor for output '" + output.name + "'");
  }
  return view_of(*dtype, shape, data.data());
}

// One result of one rank, which rank 0 asks for.
struct AskedResult {
  ResultPlace at;
  int rank = 0;
  std::size_t bytes = 0;
};

// Of all ranks but rank 0, result by result.
std::vector<AskedResult> results_of_others(const RunRequest& request, const Wiring& wiring) {
  std::vector<AskedResult> all;
  for (int rank = 1; rank < static_cast<int>(wiring.world_size); ++rank) {
    for (const ResultPlace& at : results_of(request, wiring, rank)) {
      const BoundaryValue& value = wiring.results[at.result].value;
      const Shape local = local_shape(value.spec, value.shape, at.place.program->mesh);
      all.push_back(
          {at, rank, static_cast<std::size_t>(element_count(local) * size_of(value.dtype))});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.at.result < b.at.result; });
  return all;
}

// What all ranks must have alike before they start.
std::string fingerprint(const RunRequest& request) {
  std::string text;
  for (const RunProgram& program : request.programs) {
    text += program.sha256 + " " + to_text(program.mesh) + "\n";
  }
  if (request.step) {
    text += std::to_string(request.step->micro_batches) + "\n" + schedule_text(request.step->lines);
    for (const StepProgram& program : request.step->programs) text += to_text(program.ranks);
    for (const MicroInput& input : request.step->micro_inputs) {
      text += input.name + std::to_string(input.dimension) + "\n";
    }
    for (const StepOutput& output : request.step->outputs) {
      text += output.name + to_text(output) + "\n";
    }
  }
  return text + std::to_string(request.steps) + " " + std::to_string(request.repeat) + " " +
         std::to_string(request.seed);
}

}  // namespace

struct ProcessWorld::State {
  Joined joined;

  ControlChannel& control() { return *joined.control; }
  bool is_first() { return control().rank() == 0; }

  Status check_alike(const RunRequest& request) {
    if (world_size(request) != control().size()) {
      return usage_error(
          request.programs[0].path + ": the plan is for " + std::to_string(world_size(request)) +
          " ranks, but " + std::to_string(control().size()) +
          (control().size() == 1 ? " process was" : " processes were") + " started: mpirun -n " +
          std::to_string(world_size(request)) + " autopar run ... (or srun, torchrun)");
    }
    AUTOPAR_TRY(all, control().bus().gather(fingerprint(request)));
    for (std::size_t r = 1; r < all.size(); ++r) {
      if (all[r] == all[0]) continue;
      return input_error("rank " + std::to_string(r) +
                         " has another plan, --steps, --repeat or --seed than "
                         "rank 0; all must run the same: " +
                         request.programs[0].path);
    }
    return Ok{};
  }

  // Rank 0 alone has the model that they come from.
  Result<std::map<std::string, Distribution>> common_distributions(const RunRequest& request) {
    WireWriter writer;
    writer.put<std::uint64_t>(request.distributions.size());
    for (const auto& [name, distribution] : request.distributions) {
      writer.put_text(name);
      writer.put(distribution.mean);
      writer.put(distribution.deviation);
      writer.put(distribution.indices);
    }
    AUTOPAR_TRY(bytes, control().bus().broadcast(writer.take()));
    WireReader reader(bytes);
    std::map<std::string, Distribution> distributions;
    for (std::size_t left = reader.count(sizeof(Distribution)); left > 0; --left) {
      const std::string name = reader.text();
      Distribution& distribution = distributions[name];
      distribution.mean = reader.number<double>();
      distribution.deviation = reader.number<double>();
      distribution.indices = reader.number<std::int64_t>();
    }
    AUTOPAR_RETURN_IF_ERROR(reader.finish());
    return distributions;
  }

  // Of this rank: its share of those of its machine.
  int threads(const RunRequest& request) {
    return std::max(1, thread_count(request) / std::max(1, joined.local_size));
  }

  // All ranks have just left a barrier. On one machine they have one clock.
  Result<CommonTime> common_time() {
    CommonTime time;
    const Seconds own = steady_seconds();
    WireWriter writer;
    writer.put(own);
    AUTOPAR_TRY(all, control().bus().gather(writer.take()));
    for (const std::string& bytes : all) {
      WireReader reader(bytes);
      time.started.push_back(reader.number<Seconds>());
      AUTOPAR_RETURN_IF_ERROR(reader.finish());
    }
    time.one_clock = joined.local_size == control().size();
    if (time.one_clock && !all.empty()) {
      const Seconds first = *std::min_element(time.started.begin(), time.started.end());
      time.started.assign(time.started.size(), first);
    }
    return time;
  }

  // Rank 0 asks for every result of every rank, so that few of them are in its memory at a time.
  Status compare(const RunRequest& request, const Wiring& wiring, const Rank& own,
                 const std::vector<Ort::Value>& results, const Expected& expected,
                 KeptOutputs* kept, std::vector<RankRecord>& records) {
    if (!is_first()) return hand_over(results);
    compare_rank(own, wiring, results, expected, kept, records[0]);
    const std::vector<AskedResult> all = results_of_others(request, wiring);
    std::size_t most = 0;
    for (const AskedResult& asked : all) most = std::max(most, asked.bytes);
    control().bus().allow_unreceived(2 * (kAskedAtOnce + most));
    std::size_t ahead = 0;  // has been asked for
    std::size_t bytes = 0;  // on their way
    for (std::size_t next = 0; next < all.size(); ++next) {
      for (; ahead < all.size() && (ahead == next || bytes + all[ahead].bytes <= kAskedAtOnce);
           ++ahead) {
        AUTOPAR_RETURN_IF_ERROR(control().bus().send(all[ahead].rank, ""));
        bytes += all[ahead].bytes;
      }
      AUTOPAR_TRY(received, control().bus().receive(all[next].rank));
      bytes -= all[next].bytes;
      const RankPlace& place = all[next].at.place;
      const BoundaryValue& value = wiring.results[all[next].at.result].value;
      AUTOPAR_TRY(found, value_of(received, value));
      records[static_cast<std::size_t>(all[next].rank)].differences.push_back(
          compare_output(place, value, all[next].rank, found, expected));
      if (kept != nullptr) kept->add(value, place.program->mesh, place.position, found);
    }
    return Ok{};
  }

  // The other side: each result when it is asked for.
  Status hand_over(const std::vector<Ort::Value>& results) {
    for (const Ort::Value& result : results) {
      AUTOPAR_TRY(asked, control().bus().receive(0));
      static_cast<void>(asked);
      AUTOPAR_RETURN_IF_ERROR(control().bus().send(0, to_bytes(result)));
    }
    return Ok{};
  }

  Result<Measurements> measure(const MeasureRequest& request) {
    if (control().size() < 2 &&
        dynamic_cast<GpuCommunicator*>(joined.communicator.get()) == nullptr) {
      return usage_error("links can be measured between 2 processes or more");
    }
    RunRequest cores;
    cores.threads = request.threads;
    Ort::Env environment = make_environment(threads(cores));
    AUTOPAR_TRY(gathered, control().bus().gather(machine_name()));
    WireWriter writer;
    for (const std::string& host : gathered) writer.put_text(host);
    AUTOPAR_TRY(bytes, control().bus().broadcast(writer.take()));
    WireReader reader(bytes);
    std::vector<std::string> hosts;
    for (int r = 0; r < control().size(); ++r) hosts.push_back(reader.text());
    AUTOPAR_RETURN_IF_ERROR(reader.finish());
    AUTOPAR_TRY(measured, measure_rank(*joined.communicator, environment, request, hosts));
    measured.ranks_are = joined.description;
    AUTOPAR_RETURN_IF_ERROR(control().bus().barrier());
    return std::move(measured);
  }

  // Counts as a call of all ranks: who does not come is named as fast as in any other.
  Status meet_between_runs() {
    RankGroup all(static_cast<std::size_t>(control().size()));
    std::iota(all.begin(), all.end(), 0);
    const CallLog::Inside inside(control().calls(), all, "the meeting between two runs");
    return control().bus().barrier();
  }

  // The failure of another rank ends the session's run, and is then this one's error.
  Result<std::vector<Ort::Value>> run_steps(Rank& rank, const RunRequest& request,
                                            const Wiring& wiring, const RankFeeds& feeds) {
    const auto terminate = control().on_failure([&rank] { rank.run_options.SetTerminate(); });
    try {
      return run_rank(rank, request, wiring, feeds);
    } catch (const Ort::Exception& exception) {
      if (const auto failure = control().failure()) return *failure;
      return failure_of("rank " + std::to_string(control().rank()) + " failed: ", exception,
                        ErrorCode::kRuntime);
    }
  }

  Result<RunReport> run(const RunRequest& request, const Wiring& wiring) {
    RunReport report;
    AUTOPAR_RETURN_IF_ERROR(check_alike(request));
    AUTOPAR_TRY(distributions, common_distributions(request));
    // Whole inputs are for the reference, and for what next values are compared with.
    const bool compares =
        !request.model_path.empty() || request.passes || !request.expected.empty();
    InputTensors inputs;
    if (is_first() && compares) {
      AUTOPAR_TRY(made, whole_inputs(request, wiring, distributions));
      inputs = std::move(made);
    }
    AUTOPAR_TRY(feeds, RankFeeds::make(request, wiring, distributions, control().rank(),
                                       is_first() && compares ? &inputs : nullptr));
    Ort::Env environment = make_environment(threads(request));
    Reference reference;
    std::map<std::string, Tensor> given;
    if (is_first()) {
      report.warnings = unknown_data(request);
      AUTOPAR_TRY(result, run_reference(environment, request, wiring, inputs));
      reference = std::move(result);
      report.reference_wall = reference.wall;
      given = request.expected;
      to_result_form(wiring, given);
    }
    const Expected expected{expect(request, given, inputs),
                            expect(request, reference.outputs, inputs)};
    Rank rank(std::move(joined.communicator), request, wiring);
    AUTOPAR_RETURN_IF_ERROR(open_sessions(rank, environment, request));
    if (is_first() && !rank.why_no_gpu.empty()) {
      report.warnings.push_back(
          "local ops run on the CPU, so that every collective copies to the GPU "
          "and back: " +
          rank.why_no_gpu);
    }
    // Without a time limit: rank 0 has run the model too.
    AUTOPAR_RETURN_IF_ERROR(control().bus().barrier());
    AUTOPAR_RETURN_IF_ERROR(prepare(rank, request, wiring));
    AUTOPAR_RETURN_IF_ERROR(control().bus().barrier());
    AUTOPAR_TRY(time, common_time());
    rank.meet = [this] { return meet_between_runs(); };
    AUTOPAR_TRY(results, run_steps(rank, request, wiring, feeds));
    finish_record(rank, request, wiring);
    AUTOPAR_TRY(gathered, control().bus().gather(to_bytes(rank.record)));
    std::vector<RankRecord> records;
    for (const std::string& bytes : gathered) {
      AUTOPAR_TRY(record, record_of(bytes));
      records.push_back(std::move(record));
    }
    KeptOutputs kept;
    AUTOPAR_RETURN_IF_ERROR(compare(request, wiring, rank, results, expected,
                                    request.keep_outputs ? &kept : nullptr, records));
    if (is_first()) {
      report.ranks_are = joined.description;
      report_ranks(request, wiring, std::move(records), expected, time, report);
      report.values = kept.take();
      from_result_form(wiring, report.values);
    }
    AUTOPAR_TRY(passed, control().bus().broadcast(report.passed ? "1" : "0"));
    report.passed = passed == "1";
    joined.communicator = std::move(rank.communicator);
    return report;
  }
};

ProcessWorld::ProcessWorld(std::unique_ptr<State> state) : state_(std::move(state)) {}
ProcessWorld::~ProcessWorld() = default;

Result<std::unique_ptr<ProcessWorld>> ProcessWorld::join(const std::string& ranks_by,
                                                         Seconds timeout) {
  keep_launcher_waiting();
  AUTOPAR_TRY(joined, join_ranks(ranks_by, timeout));
  auto state = std::make_unique<State>();
  state->joined = std::move(joined);
  return std::unique_ptr<ProcessWorld>(new ProcessWorld(std::move(state)));
}

bool ProcessWorld::says_why_not_joined() {
  const auto launch = launch_of_environment();
  if (!launch || !*launch || (*launch)->rank == 0) return true;
  // A rank of the same machine that has not yet said it is ended with the first that ends.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return (*launch)->local_rank == 0;
}

int ProcessWorld::rank() const { return state_->joined.control->rank(); }
int ProcessWorld::size() const { return state_->joined.control->size(); }

void ProcessWorld::on_sudden_end(std::function<void()> action) {
  state_->joined.control->on_sudden_end(std::move(action));
}

Result<RunReport> ProcessWorld::run(const RunRequest& request) {
  AUTOPAR_RETURN_IF_ERROR(verify(request));
  AUTOPAR_TRY(wiring, wiring_of(request));
  AUTOPAR_RETURN_IF_ERROR(open_onnx_runtime());
  try {
    return state_->run(request, wiring);
  } catch (const std::exception& exception) {
    return failure_of("rank " + std::to_string(rank()) + ": ", exception, ErrorCode::kRuntime);
  }
}

Result<Measurements> ProcessWorld::measure(const MeasureRequest& request) {
  AUTOPAR_RETURN_IF_ERROR(open_onnx_runtime());
  try {
    return state_->measure(request);
  } catch (const std::exception& exception) {
    return failure_of("rank " + std::to_string(rank()) + ": ", exception, ErrorCode::kRuntime);
  }
}

Status ProcessWorld::leave(const Status& own, const std::function<void(const Error&)>& say) {
  ControlChannel& control = *state_->joined.control;
  if (!own.ok()) control.report(own.error());
  Status left = control.leave([&](const Error& error) {
    say(error);
    if (control.size() == 1) return;
    // Launchers drop what they have not passed on when they are told to stop.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (state_->joined.stop) state_->joined.stop(static_cast<int>(error.code));
  });
  if (left.ok() && state_->joined.finish) state_->joined.finish();
  return left;
}

}  // namespace autopar
