#include "exec/rank.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "exec/blocks.hpp"
#include "exec/session.hpp"

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

SharedWeights share_weights(const std::map<std::string, Tensor>& weights) {
  SharedWeights shared;
  for (const auto& [name, tensor] : weights) {
    if (tensor.shape.size() < 2) continue;
    shared.emplace_back(name, view_of(tensor.dtype, tensor.shape, tensor.bytes.data()));
  }
  return shared;
}

Status open_session(Rank& rank, Ort::Env& environment, const RunRequest& request,
                    const SharedWeights& weights, const TraceFolder& traces) {
  const std::string number = std::to_string(rank.communicator->rank());
  try {
    Ort::SessionOptions options = session_options(request.optimize);
    rank.collectives.add_to(options);
    for (const auto& [name, value] : weights) options.AddInitializer(name.c_str(), value);
    if (!traces.path().empty()) {
      options.EnableProfiling((traces.path() + "/rank" + number).c_str());
    }
    rank.session.emplace(environment, rank.place.program->path.c_str(), options);
    rank.inputs = inputs_of(*rank.session);
    rank.outputs = outputs_of(*rank.session);
  } catch (const Ort::Exception& exception) {
    return input_error(rank.place.program->path + ": ONNX Runtime refuses the plan (rank " +
                       number + "): " + exception.what());
  }
  AUTOPAR_RETURN_IF_ERROR(
      check_boundary(*rank.place.program, rank.inputs, rank.place.program->inputs, "input"));
  return check_boundary(*rank.place.program, rank.outputs, rank.place.program->outputs, "output");
}

namespace {

// The rank's slices of the whole inputs, as its session wants them.
class RankInputs {
 public:
  RankInputs(const Rank& rank, const std::map<std::string, Tensor>& inputs) {
    const RunProgram& program = *rank.place.program;
    slices_.reserve(rank.inputs.size());  // values point into them
    for (const Declared& input : rank.inputs) {
      const Spec& spec = program.inputs[index_of(program.inputs, input.name)].spec;
      const Tensor& whole = inputs.at(input.name);
      slices_.emplace_back(whole, spec, program.mesh, rank.place.position);
      values.push_back(view_of(whole.dtype, slices_.back().shape(), slices_.back().data()));
    }
  }
  std::vector<Ort::Value> values;

 private:
  std::vector<Slice> slices_;
};

}  // namespace

std::vector<Ort::Value> run_rank(Rank& rank, const RunRequest& request,
                                 const std::map<std::string, Tensor>& inputs) {
  RankInputs fed(rank, inputs);
  std::vector<Ort::Value> results;
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < request.steps; ++step) {
    if (step > 0) {
      feed_back(rank.inputs, rank.outputs, request.updates, results, fed.values);
      rank.collectives.next_step();
    }
    results = run_session(*rank.session, rank.run_options, rank.inputs, fed.values, rank.outputs);
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  rank.record.wall = time.count();
  std::vector<Ort::Value> ordered;
  for (const BoundaryValue& output : rank.place.program->outputs) {
    ordered.push_back(std::move(results[index_of(rank.outputs, output.name)]));
  }
  return ordered;
}

void compare_rank(const RunRequest& request, const RankProgram& place, int rank,
                  const std::vector<Ort::Value>& outputs, const Expected& expected,
                  KeptOutputs* kept, RankRecord& record) {
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    const BoundaryValue& output = place.program->outputs[o];
    record.differences.push_back(
        compare_output(request, place, output, rank, outputs[o], expected));
    if (kept != nullptr) kept->add(output, place.program->mesh, place.position, outputs[o]);
  }
}

std::map<std::string, KernelTimes> read_trace(Rank& rank, const TraceFolder& traces) {
  Ort::AllocatorWithDefaultOptions allocator;
  const std::string path = rank.session->EndProfilingAllocated(allocator).get();
  if (traces.has_file()) return kernel_times(traces.text_of_file());
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return kernel_times(text.str());
}

}  // namespace autopar
