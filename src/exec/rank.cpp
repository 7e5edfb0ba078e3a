#include "exec/rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "exec/blocks.hpp"
#include "exec/calls.hpp"
#include "exec/cuda_provider.hpp"
#include "exec/nccl/nccl.hpp"
#include "exec/session.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

// The index of the entry of that name, or the size where there is none.
template <class Named>
std::size_t index_of(const std::vector<Named>& values, const std::string& name) {
  return static_cast<std::size_t>(
      std::find_if(values.begin(), values.end(), [&](const Named& v) { return v.name == name; }) -
      values.begin());
}

// Whether a declared type is that of the local slice, as far as the file fixes its shape.
bool fits(const Declared& declared, DType dtype, const Shape& local) {
  if (dtype_of(declared.type) != dtype || declared.shape.size() != local.size()) return false;
  for (std::size_t d = 0; d < local.size(); ++d) {
    if (declared.shape[d] >= 0 && declared.shape[d] != local[d]) return false;
  }
  return true;
}

// The file's inputs (or outputs) are those of the request, with the local shapes of their specs.
Status check_boundary(const RunProgram& program, const std::vector<Declared>& declared,
                      const std::vector<BoundaryValue>& values, const std::string& what) {
  for (const BoundaryValue& value : values) {
    const std::size_t i = index_of(declared, value.name);
    if (i == declared.size()) {
      return input_error(program.path + ": has no " + what + " '" + value.name + "'");
    }
    const Shape local = local_shape(value.spec, value.shape, program.mesh);
    if (fits(declared[i], value.dtype, local)) continue;
    const auto dtype = dtype_of(declared[i].type);
    return input_error(program.path + ": " + what + " '" + value.name + "' is declared " +
                       (dtype ? type_text(*dtype, declared[i].shape) : "with an unsupported type") +
                       ", but its layout " + to_text(value.spec, program.mesh) + " of " +
                       type_text(value.dtype, value.shape) + " gives " + to_text(local));
  }
  for (const Declared& d : declared) {
    if (index_of(values, d.name) < values.size()) continue;
    return input_error(program.path + ": " + what + " '" + d.name +
                       "' has no layout; the plan must say how each lies");
  }
  return Ok{};
}

// Of the ranks that run the rank's programs, which are the same of all.
std::vector<std::int64_t> ranks_beside(const RunRequest& request, int rank) {
  for (const RunProgram& program : request.programs) {
    if (position_of(program, rank)) return program.ranks;
  }
  return {};
}

}  // namespace

Rank::Rank(std::unique_ptr<Communicator> end, const RunRequest& request, const Wiring& wiring)
    : communicator(std::move(end)),
      results(results_of(request, wiring, communicator->rank())),
      collectives(*communicator, ranks_beside(request, communicator->rank())) {
  for (const RunProgram& program : request.programs) {
    programs.emplace_back();
    const auto position = position_of(program, communicator->rank());
    if (!position) continue;
    programs.back() = std::make_unique<RankProgram>();
    programs.back()->place = {&program, *position};
  }
}

void KeptOutputs::add(const BoundaryValue& output, const Mesh& mesh, std::int64_t position,
                      const Ort::Value& found) {
  const auto type = found.GetTensorTypeAndShapeInfo();
  const bool as_planned = dtype_of(type.GetElementType()) == output.dtype &&
                          type.GetShape() == local_shape(output.spec, output.shape, mesh);
  if (!as_planned) return;  // reported by the comparison
  const std::lock_guard lock(mutex_);
  Tensor& whole = tensors_[output.name];
  if (whole.bytes.empty()) {
    whole = {output.dtype, output.shape, {}};
    whole.bytes.resize(
        static_cast<std::size_t>(element_count(output.shape) * size_of(output.dtype)));
  }
  put_slice(found.GetTensorRawData(), output.spec, mesh, position, whole);
}

namespace {

SharedWeights share_weights(const RunProgram& program) {
  SharedWeights shared;
  for (const auto& [name, tensor] : program.weights) {
    if (tensor.shape.size() < 2) continue;
    shared.emplace_back(name, view_of(tensor.dtype, tensor.shape, tensor.bytes.data()));
  }
  for (const auto& [name, view] : program.weight_views) {
    if (view.shape.size() < 2) continue;
    shared.emplace_back(name, view_of(view.dtype, view.shape, view.data));
  }
  return shared;
}

}  // namespace

namespace {

Status open_session(Rank& rank, RankProgram& own, Ort::Env& environment,
                    const RunRequest& request) {
  const std::string number = std::to_string(rank.communicator->rank());
  const RunProgram& program = *own.place.program;
  const std::string& path = program.rank_paths.empty()
                                ? program.path
                                : program.rank_paths[static_cast<std::size_t>(own.place.position)];
  try {
    Ort::SessionOptions options = session_options(request.optimize);
    const auto* with_gpu = dynamic_cast<GpuCommunicator*>(rank.communicator.get());
    if (with_gpu != nullptr) rank.why_no_gpu = add_cuda_provider(options, with_gpu->gpu());
    const bool on_gpu = with_gpu != nullptr && rank.why_no_gpu.empty();
    if (on_gpu) rank.collectives.use_gpu();
    rank.collectives.add_to(options);
    // A GPU needs its own copy of the weights, which the session makes from the file.
    if (!on_gpu) own.weights = share_weights(program);
    for (const auto& [name, value] : own.weights) options.AddInitializer(name.c_str(), value);
    const auto open = [&](const std::string& trace) {
      if (!trace.empty()) options.EnableProfiling(trace.c_str());
      own.session = open_model(environment, path, program.bytes.get(), options);
    };
    request.profile ? own.trace.take(open) : open("");
    own.inputs = inputs_of(*own.session);
    own.outputs = outputs_of(*own.session);
  } catch (const Ort::Exception& exception) {
    return failure_of(path + ": ONNX Runtime refuses the plan (rank " + number + "): ", exception,
                      ErrorCode::kInput);
  }
  AUTOPAR_RETURN_IF_ERROR(check_boundary(program, own.inputs, program.inputs, "input"));
  AUTOPAR_RETURN_IF_ERROR(check_boundary(program, own.outputs, program.outputs, "output"));
  for (const Declared& input : own.inputs) {
    own.input_index.push_back(index_of(program.inputs, input.name));
  }
  for (const Declared& output : own.outputs) {
    own.output_index.push_back(index_of(program.outputs, output.name));
  }
  return Ok{};
}

}  // namespace

Status open_sessions(Rank& rank, Ort::Env& environment, const RunRequest& request) {
  for (const auto& program : rank.programs) {
    if (program) AUTOPAR_RETURN_IF_ERROR(open_session(rank, *program, environment, request));
  }
  return Ok{};
}

Status prepare(Rank& rank, const RunRequest& request, const Wiring& wiring) {
  std::vector<GroupPartition> partitions;
  for (const auto& program : rank.programs) {
    if (!program) continue;
    for (const GroupPartition& partition : program->place.program->partitions) {
      if (std::find(partitions.begin(), partitions.end(), partition) == partitions.end()) {
        partitions.push_back(partition);
      }
    }
  }
  AUTOPAR_RETURN_IF_ERROR(rank.communicator->prepare(partitions));
  const auto pairs = message_pairs(request, wiring);
  return pairs.empty() ? Status(Ok{}) : rank.communicator->prepare_messages(pairs);
}

namespace {

// The first result whose bytes are not those of the run before.
std::string changed_result(const Rank& rank, const Wiring& wiring,
                           const std::vector<Ort::Value>& before,
                           const std::vector<Ort::Value>& after) {
  for (std::size_t o = 0; o < after.size(); ++o) {
    const auto dtype = dtype_of(after[o].GetTensorTypeAndShapeInfo().GetElementType());
    if (!dtype) continue;
    const auto bytes = static_cast<std::size_t>(
        static_cast<std::int64_t>(after[o].GetTensorTypeAndShapeInfo().GetElementCount()) *
        size_of(*dtype));
    const bool same =
        before[o].GetTensorTypeAndShapeInfo().GetShape() ==
            after[o].GetTensorTypeAndShapeInfo().GetShape() &&
        std::memcmp(before[o].GetTensorRawData(), after[o].GetTensorRawData(), bytes) == 0;
    if (!same) {
      return "output '" + wiring.results[rank.results[o].result].value.name +
             "' is not the same bit for bit in two runs on the same inputs";
    }
  }
  return "";
}

}  // namespace

std::vector<Ort::Value> run_rank(Rank& rank, const RunRequest& request, const Wiring& wiring,
                                 const RankFeeds& feeds) {
  std::vector<Ort::Value> results;
  if (request.timeline || request.repeat > 0) rank.collectives.want_events();
  for (int run = 0; run <= request.repeat; ++run) {
    if (run > 0 && rank.meet) {
      if (const Status met = rank.meet(); !met) {
        rank.collectives.stop();
        throw Ort::Exception(std::string(met.error().message), ORT_FAIL);
      }
    }
    rank.collectives.begin_run();
    const std::vector<Ort::Value> before = std::move(results);
    const Seconds begin = steady_seconds();
    RankCalls calls(rank, request, wiring, feeds);
    results = calls.run();
    RankRun timed;
    timed.begin = begin;
    timed.wall = steady_seconds() - begin;
    rank.record.runs.push_back(timed);
    if (run > 0 && rank.record.changed.empty()) {
      rank.record.changed = changed_result(rank, wiring, before, results);
    }
  }
  return results;
}

void compare_rank(const Rank& rank, const Wiring& wiring, const std::vector<Ort::Value>& results,
                  const Expected& expected, KeptOutputs* kept, RankRecord& record) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    const ResultPlace& at = rank.results[r];
    const BoundaryValue& value = wiring.results[at.result].value;
    record.differences.push_back(
        compare_output(at.place, value, rank.communicator->rank(), results[r], expected));
    if (kept != nullptr) kept->add(value, at.place.program->mesh, at.place.position, results[r]);
  }
}

namespace {

// ONNX Runtime counts from this moment, which it tells by the system's clock.
Seconds trace_begin(const Ort::Session& session) {
  const Seconds before = steady_seconds();
  const auto system = std::chrono::system_clock::now().time_since_epoch();
  const Seconds now = (before + steady_seconds()) / 2;
  const double since = std::chrono::duration<double>(system).count() -
                       1e-9 * static_cast<double>(session.GetProfilingStartTimeNs());
  return now - since;
}

}  // namespace

void finish_record(Rank& rank, const RunRequest& request, const Wiring& wiring) {
  std::vector<ProgramTrace> traces;
  bool lacks_trace = false;
  const int self = rank.communicator->rank();
  const auto& line = wiring.lines[wiring.line_of_rank[static_cast<std::size_t>(self)]];
  for (std::size_t p = 0; p < rank.programs.size(); ++p) {
    if (!rank.programs[p]) continue;
    RankProgram& program = *rank.programs[p];
    ProgramTrace& trace = traces.emplace_back();
    trace.calls_per_step = static_cast<int>(std::count_if(
        line.begin(), line.end(), [p](const ProgramCall& call) { return call.program == p; }));
    lacks_trace = lacks_trace || !program.trace.is_open();
    if (!program.trace.is_open()) continue;
    trace.begin = trace_begin(*program.session);
    Ort::AllocatorWithDefaultOptions allocator;
    program.session->EndProfilingAllocated(allocator);
    trace.trace = program.trace.read();
  }
  add_times(request, self, rank.collectives.times(), traces, rank.record);
  if (request.profile && lacks_trace) {
    rank.record.incomplete =
        "no times of local ops: no file for ONNX Runtime's trace could be made in the folder for "
        "temporary files (TMPDIR)";
  }
}

}  // namespace autopar
