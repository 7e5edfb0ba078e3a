#include <algorithm>
#include <cstdlib>
#include <thread>

#include "autopar/calibrate.hpp"
#include "autopar/sha256.hpp"
#include "exec/measure.hpp"
#include "exec/process/joined.hpp"
#include "exec/process/last_words.hpp"
#include "exec/process/wire.hpp"
#include "exec/rank.hpp"
#include "exec/session.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

// One output of one rank on its way to rank 0.
std::string to_bytes(const Ort::Value& value) {
  const auto type = value.GetTensorTypeAndShapeInfo();
  const auto dtype = dtype_of(type.GetElementType());
  AUTOPAR_CHECK(dtype.has_value(), "an output of an unsupported type");
  const Shape shape = type.GetShape();
  WireWriter writer;
  writer.put<int>(static_cast<int>(*dtype));
  writer.put<std::uint64_t>(shape.size());
  for (std::int64_t extent : shape) writer.put(extent);
  writer.put_text({static_cast<const char*>(value.GetTensorRawData()),
                   static_cast<std::size_t>(element_count(shape) * size_of(*dtype))});
  return writer.take();
}

// A view of `bytes`.
Ort::Value value_of(const std::string& bytes) {
  WireReader reader(bytes);
  const auto dtype = static_cast<DType>(reader.number<int>());
  Shape shape(reader.number<std::uint64_t>());
  for (std::int64_t& extent : shape) extent = reader.number<std::int64_t>();
  return view_of(dtype, shape, reader.view().data());
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
    AUTOPAR_TRY(all, control().gather(fingerprint(request)));
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
    AUTOPAR_TRY(bytes, control().broadcast(writer.take()));
    WireReader reader(bytes);
    std::map<std::string, Distribution> distributions;
    for (auto left = reader.number<std::uint64_t>(); left > 0; --left) {
      const std::string name = reader.text();
      Distribution& distribution = distributions[name];
      distribution.mean = reader.number<double>();
      distribution.deviation = reader.number<double>();
      distribution.indices = reader.number<std::int64_t>();
    }
    return distributions;
  }

  int threads(const RunRequest& request) {
    const int cores = thread_count(request);
    if (request.threads > 0) return request.threads;
    return std::max(1, cores / std::max(1, joined.local_size));
  }

  // All ranks have just left a barrier. On one machine they have one clock.
  Result<CommonTime> common_time() {
    CommonTime time;
    const Seconds own = steady_seconds();
    WireWriter writer;
    writer.put(own);
    AUTOPAR_TRY(all, control().gather(writer.take()));
    for (const std::string& bytes : all)
      time.started.push_back(WireReader(bytes).number<Seconds>());
    time.one_clock = joined.local_size == control().size();
    if (time.one_clock && !all.empty()) {
      const Seconds first = *std::min_element(time.started.begin(), time.started.end());
      time.started.assign(time.started.size(), first);
    }
    return time;
  }

  // Rank 0 gathers every output of every rank, one at a time, and compares.
  Status compare(const RunRequest& request, const std::vector<Ort::Value>& outputs,
                 const Expected& expected, KeptOutputs* kept, std::vector<RankRecord>& records) {
    std::size_t most = 0;
    for (const RunProgram& program : request.programs) {
      most = std::max(most, program.outputs.size());
    }
    const std::vector<RankPlace> places = places_of(request);
    for (std::size_t o = 0; o < most; ++o) {
      AUTOPAR_TRY(all, control().gather(o < outputs.size() ? to_bytes(outputs[o]) : ""));
      for (std::size_t r = 0; r < all.size(); ++r) {
        const RankPlace& place = places[r];
        if (o >= place.program->outputs.size()) continue;
        const BoundaryValue& output = place.program->outputs[o];
        const Ort::Value found = value_of(all[r]);
        records[r].differences.push_back(
            compare_output(place, output, static_cast<int>(r), found, expected));
        if (kept != nullptr) kept->add(output, place.program->mesh, place.position, found);
        all[r] = std::string();
      }
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
    AUTOPAR_TRY(gathered, control().gather(host_name()));
    WireWriter writer;
    for (const std::string& host : gathered) writer.put_text(host);
    AUTOPAR_TRY(bytes, control().broadcast(writer.take()));
    WireReader reader(bytes);
    std::vector<std::string> hosts;
    for (int r = 0; r < control().size(); ++r) hosts.push_back(reader.text());
    AUTOPAR_TRY(measured, measure_rank(*joined.communicator, environment, request, hosts));
    measured.ranks_are = joined.description;
    AUTOPAR_RETURN_IF_ERROR(control().barrier());
    return std::move(measured);
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
    AUTOPAR_RETURN_IF_ERROR(control().barrier());
    AUTOPAR_RETURN_IF_ERROR(rank.communicator->prepare(rank.place.program->partitions));
    AUTOPAR_RETURN_IF_ERROR(control().barrier());
    AUTOPAR_TRY(time, common_time());
    rank.meet = [this] { return control().barrier(); };
    control().on_failure([&rank] { rank.run_options.SetTerminate(); });
    std::vector<Ort::Value> outputs;
    try {
      outputs = run_rank(rank, request, inputs);
    } catch (const Ort::Exception& exception) {
      control().on_failure({});
      if (const auto failure = control().failure()) return *failure;
      return runtime_error("rank " + std::to_string(control().rank()) +
                           " failed: " + exception.what());
    }
    control().on_failure({});

    finish_record(rank, request);
    AUTOPAR_TRY(gathered, control().gather(to_bytes(rank.record)));
    std::vector<RankRecord> records;
    for (const std::string& bytes : gathered) records.push_back(record_of(bytes));
    KeptOutputs kept;
    AUTOPAR_RETURN_IF_ERROR(
        compare(request, outputs, expected, request.keep_outputs ? &kept : nullptr, records));
    if (is_first()) {
      report.ranks_are = joined.description;
      report_ranks(request, std::move(records), expected, time, report);
      report.values = kept.take();
    }
    AUTOPAR_TRY(passed, control().broadcast(report.passed ? "1" : "0"));
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
    return runtime_error("rank " + std::to_string(rank()) + ": " + exception.what());
  }
}

Result<Measurements> ProcessWorld::measure(const MeasureRequest& request) {
  AUTOPAR_RETURN_IF_ERROR(open_onnx_runtime());
  try {
    return state_->measure(request);
  } catch (const std::exception& exception) {
    return runtime_error("rank " + std::to_string(rank()) + ": " + exception.what());
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
