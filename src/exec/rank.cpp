#include "exec/rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "exec/blocks.hpp"
#include "exec/cuda_provider.hpp"
#include "exec/nccl/nccl.hpp"
#include "exec/session.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

std::string type_text(DType dtype, const Shape& shape) { return name_of(dtype) + to_text(shape); }

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

}  // namespace

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

Status open_session(Rank& rank, Ort::Env& environment, const RunRequest& request) {
  const std::string number = std::to_string(rank.communicator->rank());
  const RunProgram& program = *rank.place.program;
  const std::string& path = program.rank_paths.empty()
                                ? program.path
                                : program.rank_paths[static_cast<std::size_t>(rank.place.position)];
  try {
    Ort::SessionOptions options = session_options(request.optimize);
    const auto* with_gpu = dynamic_cast<GpuCommunicator*>(rank.communicator.get());
    if (with_gpu != nullptr) rank.why_no_gpu = add_cuda_provider(options, with_gpu->gpu());
    const bool on_gpu = with_gpu != nullptr && rank.why_no_gpu.empty();
    if (on_gpu) rank.collectives.use_gpu();
    rank.collectives.add_to(options);
    // A GPU needs its own copy of the weights, which the session makes from the file.
    if (!on_gpu) rank.weights = share_weights(*rank.place.program);
    for (const auto& [name, value] : rank.weights) options.AddInitializer(name.c_str(), value);
    const auto open = [&](const std::string& trace) {
      if (!trace.empty()) options.EnableProfiling(trace.c_str());
      rank.session = open_model(environment, path, program.bytes.get(), options);
    };
    request.profile ? rank.trace.take(open) : open("");
    rank.inputs = inputs_of(*rank.session);
    rank.outputs = outputs_of(*rank.session);
  } catch (const Ort::Exception& exception) {
    return failure_of(path + ": ONNX Runtime refuses the plan (rank " + number + "): ", exception,
                      ErrorCode::kInput);
  }
  AUTOPAR_RETURN_IF_ERROR(
      check_boundary(*rank.place.program, rank.inputs, rank.place.program->inputs, "input"));
  return check_boundary(*rank.place.program, rank.outputs, rank.place.program->outputs, "output");
}

namespace {

// The rank's slices of its inputs, as its session wants them. Of whole inputs they are views where
// they lie in one piece.
class RankInputs {
 public:
  RankInputs(const Rank& rank, const InputTensors& inputs) {
    const RunProgram& program = *rank.place.program;
    const Mesh alone;
    slices_.reserve(rank.inputs.size());  // values point into them
    for (const Declared& input : rank.inputs) {
      const Spec& spec = program.inputs[index_of(program.inputs, input.name)].spec;
      const Tensor& tensor = inputs.tensors.at(input.name);
      dtypes_.push_back(tensor.dtype);
      if (inputs.whole) {
        slices_.emplace_back(tensor, spec, program.mesh, rank.place.position);
      } else {
        slices_.emplace_back(tensor, replicated(tensor.shape.size()), alone, 0);
      }
    }
  }
  std::vector<Ort::Value> values() const {
    std::vector<Ort::Value> views;
    for (std::size_t i = 0; i < slices_.size(); ++i) {
      views.push_back(view_of(dtypes_[i], slices_[i].shape(), slices_[i].data()));
    }
    return views;
  }

 private:
  std::vector<DType> dtypes_;
  std::vector<Slice> slices_;
};

}  // namespace

namespace {

// The first output whose bytes are not those of the run before.
std::string changed_output(const Rank& rank, const std::vector<Ort::Value>& before,
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
      return "output '" + rank.outputs[o].name +
             "' is not the same bit for bit in two runs on the same inputs";
    }
  }
  return "";
}

// All steps of one run.
std::vector<Ort::Value> run_steps(Rank& rank, const RunRequest& request,
                                  std::vector<Ort::Value> values) {
  std::vector<Ort::Value> results;
  for (int step = 0; step < request.steps; ++step) {
    if (step > 0) {
      feed_back(rank.inputs, rank.outputs, request.updates, results, values);
      rank.collectives.next_step();
    }
    results = run_session(*rank.session, rank.run_options, rank.inputs, values, rank.outputs);
  }
  return results;
}

}  // namespace

std::vector<Ort::Value> run_rank(Rank& rank, const RunRequest& request,
                                 const InputTensors& inputs) {
  const RankInputs fed(rank, inputs);
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
    std::vector<Ort::Value> values = fed.values();
    const Seconds begin = steady_seconds();
    results = run_steps(rank, request, std::move(values));
    RankRun timed;
    timed.begin = begin;
    timed.wall = steady_seconds() - begin;
    rank.record.runs.push_back(timed);
    if (run > 0 && rank.record.changed.empty()) {
      rank.record.changed = changed_output(rank, before, results);
    }
  }
  std::vector<Ort::Value> ordered;
  for (const BoundaryValue& output : rank.place.program->outputs) {
    ordered.push_back(std::move(results[index_of(rank.outputs, output.name)]));
  }
  return ordered;
}

void compare_rank(const RankPlace& place, int rank, const std::vector<Ort::Value>& outputs,
                  const Expected& expected, KeptOutputs* kept, RankRecord& record) {
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const BoundaryValue& output = place.program->outputs[o];
    record.differences.push_back(compare_output(place, output, rank, outputs[o], expected));
    if (kept != nullptr) kept->add(output, place.program->mesh, place.position, outputs[o]);
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

void finish_record(Rank& rank, const RunRequest& request) {
  Trace trace;
  Seconds begin = 0;
  if (rank.trace.is_open()) {
    begin = trace_begin(*rank.session);
    Ort::AllocatorWithDefaultOptions allocator;
    rank.session->EndProfilingAllocated(allocator);
    trace = rank.trace.read();
  }
  add_times(request, rank.communicator->rank(), rank.collectives.times(), trace, begin,
            rank.record);
  if (request.profile && !rank.trace.is_open()) {
    rank.record.incomplete =
        "no times of local ops: no file for ONNX Runtime's trace could be made in the folder for "
        "temporary files (TMPDIR)";
  }
}

}  // namespace autopar
