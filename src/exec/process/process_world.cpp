#include <algorithm>
#include <cstdlib>
#include <thread>

#include "autopar/calibrate.hpp"
#include "autopar/sha256.hpp"
#include "exec/machine.hpp"
#include "exec/measure.hpp"
#include "exec/process/joined.hpp"
#include "exec/process/last_words.hpp"
#include "exec/process/wire.hpp"
#include "exec/rank.hpp"
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

// One output of one rank, which rank 0 asks for.
struct AskedOutput {
  std::size_t output = 0;  // of the rank's program
  int rank = 0;
  std::size_t bytes = 0;
};

// Of all ranks but rank 0, output by output.
std::vector<AskedOutput> outputs_of_others(const std::vector<RankPlace>& places) {
  std::vector<AskedOutput> all;
  for (int rank = 1; rank < static_cast<int>(places.size()); ++rank) {
    const RunProgram& program = *places[static_cast<std::size_t>(rank)].program;
    for (std::size_t o = 0; o < program.outputs.size(); ++o) {
      const BoundaryValue& output = program.outputs[o];
      const Shape local = local_shape(output.spec, output.shape, program.mesh);
      all.push_back(
          {o, rank, static_cast<std::size_t>(element_count(local) * size_of(output.dtype))});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.output < b.output; });
  return all;
}

// What all ranks must have alike before they start.
std::string fingerprint(const RunRequest& request) {
  std::string text;
  for (const RunProgram& program : request.programs) {
    text += program.sha256 + " " + to_text(program.mesh) + "\n";
  }
  return text + std::to_string(request.steps) + " " + std::to_string(request.repeat) + " " +
         std::to_string(request.seed);
}

}  // namespace

struct ProcessWorld::State {
  Joined joined;
  std::unique_ptr<Rank> rank;

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

  // Rank 0 asks for every output of every rank, so that few of them are in its memory at a time.
  Status compare(const RunRequest& request, const std::vector<Ort::Value>& outputs,
                 const Expected& expected, KeptOutputs* kept, std::vector<RankRecord>& records) {
    if (!is_first()) return hand_over(outputs);
    const std::vector<RankPlace> places = places_of(request);
    compare_rank(places[0], 0, outputs, expected, kept, records[0]);
    const std::vector<AskedOutput> all = outputs_of_others(places);
    std::size_t most = 0;
    for (const AskedOutput& asked : all) most = std::max(most, asked.bytes);
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
      const RankPlace& place = places[static_cast<std::size_t>(all[next].rank)];
      const BoundaryValue& output = place.program->outputs[all[next].output];
      AUTOPAR_TRY(found, value_of(received, output));
      records[static_cast<std::size_t>(all[next].rank)].differences.push_back(
          compare_output(place, output, all[next].rank, found, expected));
      if (kept != nullptr) kept->add(output, place.program->mesh, place.position, found);
    }
    return Ok{};
  }

  // The other side: each output when it is asked for.
  Status hand_over(const std::vector<Ort::Value>& outputs) {
    for (const Ort::Value& output : outputs) {
      AUTOPAR_TRY(asked, control().bus().receive(0));
      static_cast<void>(asked);
      AUTOPAR_RETURN_IF_ERROR(control().bus().send(0, to_bytes(output)));
    }
    return Ok{};
  }

  Result<Measurements> measure(const MeasureRequest& request) {
    if (control().size() < 2) {
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

  // The failure of another rank ends the session's run, and is then this one's error.
  Result<std::vector<Ort::Value>> run_steps(Rank& rank, const RunRequest& request,
                                            const InputTensors& inputs) {
    const auto terminate = control().on_failure([&rank] { rank.run_options.SetTerminate(); });
    try {
      return run_rank(rank, request, inputs);
    } catch (const Ort::Exception& exception) {
      if (const auto failure = control().failure()) return *failure;
      return failure_of("rank " + std::to_string(control().rank()) + " failed: ", exception,
                        ErrorCode::kRuntime);
    }
  }

  Result<RunReport> run(const RunRequest& request) {
    RunReport report;
    AUTOPAR_RETURN_IF_ERROR(check_alike(request));
    AUTOPAR_TRY(distributions, common_distributions(request));
    // Whole inputs are for the unsharded model, and for what next values are compared with.
    const bool whole = is_first() && !(request.model_path.empty() && request.expected.empty());
    AUTOPAR_TRY(inputs,
                whole ? whole_inputs(request, distributions)
                      : rank_inputs(request, distributions, program_of(request, control().rank())));
    Ort::Env environment = make_environment(threads(request));
    Reference reference;
    if (is_first()) {
      report.warnings = unknown_data(request);
      if (!request.model_path.empty()) {
        AUTOPAR_TRY(result, run_model(environment, request, inputs.tensors));
        reference = std::move(result);
        report.reference_wall = reference.wall;
      }
    }
    const std::map<std::string, Tensor> none;
    const Expected expected{expect(request, is_first() ? request.expected : none, inputs.tensors),
                            expect(request, reference.outputs, inputs.tensors)};
    Rank rank(std::move(joined.communicator), request);
    AUTOPAR_RETURN_IF_ERROR(open_session(rank, environment, request));
    if (is_first() && !rank.why_no_gpu.empty()) {
      report.warnings.push_back(
          "local ops run on the CPU, so that every collective copies to the GPU "
          "and back: " +
          rank.why_no_gpu);
    }
    // Without a time limit: rank 0 has run the model too.
    AUTOPAR_RETURN_IF_ERROR(control().bus().barrier());
    AUTOPAR_RETURN_IF_ERROR(rank.communicator->prepare(rank.place.program->partitions));
    AUTOPAR_RETURN_IF_ERROR(control().bus().barrier());
    AUTOPAR_TRY(time, common_time());
    rank.meet = [this] { return control().bus().barrier(); };
    AUTOPAR_TRY(outputs, run_steps(rank, request, inputs));
    finish_record(rank, request);
    AUTOPAR_TRY(gathered, control().bus().gather(to_bytes(rank.record)));
    std::vector<RankRecord> records;
    for (const std::string& bytes : gathered) {
      AUTOPAR_TRY(record, record_of(bytes));
      records.push_back(std::move(record));
    }
    KeptOutputs kept;
    AUTOPAR_RETURN_IF_ERROR(
        compare(request, outputs, expected, request.keep_outputs ? &kept : nullptr, records));
    if (is_first()) {
      report.ranks_are = joined.description;
      report_ranks(request, std::move(records), expected, time, report);
      report.values = kept.take();
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
  AUTOPAR_RETURN_IF_ERROR(open_onnx_runtime());
  try {
    return state_->run(request);
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
