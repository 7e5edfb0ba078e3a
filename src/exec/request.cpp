#include "exec/request.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "exec/blocks.hpp"
#include "exec/generate.hpp"
#include "exec/wiring.hpp"

namespace autopar {

namespace {

using Tensors = std::map<std::string, Tensor>;

Status verify(const RunProgram& program, bool of_step) {
  for (const auto* values : {&program.inputs, &program.outputs}) {
    for (const BoundaryValue& value : *values) {
      if (auto status = verify(value.spec, value.shape, program.mesh); !status) {
        return input_error(program.path + ": '" + value.name + "': " + status.error().message);
      }
      if (value.spec.partial.empty() || of_step) continue;  // the wiring says which may be
      return input_error(program.path + ": '" + value.name +
                         "' is a partial sum; inputs and outputs of a plan must not be");
    }
  }
  return Ok{};
}

using Distributions = std::map<std::string, Distribution>;

Distribution distribution_of(const BoundaryValue& input, const Distributions& distributions) {
  const auto known = distributions.find(input.name);
  return known == distributions.end() ? Distribution{} : known->second;
}

Status check_given(const BoundaryValue& input, const Tensor& tensor) {
  if (tensor.dtype == input.dtype && tensor.shape == input.shape) return Ok{};
  return input_error("data for input '" + input.name + "': expected " + name_of(input.dtype) +
                     to_text(input.shape) + ", found " + name_of(tensor.dtype) +
                     to_text(tensor.shape));
}

// Nothing: it is not given.
Result<std::optional<Tensor>> given_input(const BoundaryValue& input, const RunRequest& request) {
  std::optional<Tensor> tensor;
  const auto given = request.data.find(input.name);
  if (given != request.data.end()) {
    tensor = given->second;
  } else if (request.read_data) {
    AUTOPAR_TRY(read, request.read_data(input.name));
    tensor = std::move(read);
  }
  if (tensor) AUTOPAR_RETURN_IF_ERROR(check_given(input, *tensor));
  return tensor;
}

Result<Tensor> whole_input(const BoundaryValue& input, const RunRequest& request,
                           const Distributions& distributions) {
  AUTOPAR_TRY(given, given_input(input, request));
  if (given) return std::move(*given);
  return generate(input.name, input.dtype, input.shape, request.seed,
                  distribution_of(input, distributions));
}

void note_unknown(const RunRequest& request, const Tensors& tensors,
                  std::vector<BoundaryValue> RunProgram::*values, const char* what,
                  std::vector<std::string>& warnings) {
  for (const auto& entry : tensors) {
    const bool known = std::any_of(
        request.programs.begin(), request.programs.end(), [&](const RunProgram& program) {
          const auto& all = program.*values;
          return std::any_of(all.begin(), all.end(),
                             [&](const BoundaryValue& v) { return v.name == entry.first; });
        });
    if (known) continue;
    warnings.push_back("data for '" + entry.first + "' is not used: the plan has no " + what +
                       " of that name");
  }
}

}  // namespace

std::int64_t world_size(const RunRequest& request) {
  if (request.step) return request.step->world_size;
  std::int64_t size = 0;
  for (const RunProgram& program : request.programs) size += program.mesh.size();
  return size;
}

namespace {

// The programs are those of the step.
Status verify_step(const RunRequest& request) {
  AUTOPAR_RETURN_IF_ERROR(verify(*request.step));
  AUTOPAR_CHECK(request.programs.size() == request.step->programs.size(),
                "a step has other programs than its request");
  for (std::size_t p = 0; p < request.programs.size(); ++p) {
    const RunProgram& program = request.programs[p];
    const std::vector<std::int64_t>& ranks = request.step->programs[p].ranks;
    if (program.ranks == ranks && static_cast<std::int64_t>(ranks.size()) == program.mesh.size()) {
      continue;
    }
    return input_error(program.path + ": its mesh " + to_text(program.mesh) + " is for " +
                       std::to_string(program.mesh.size()) + " ranks, step.json lists " +
                       std::to_string(ranks.size()));
  }
  return Ok{};
}

}  // namespace

Status verify(const RunRequest& request) {
  if (request.programs.empty()) return input_error("there is no program to run");
  const std::int64_t size = world_size(request);
  std::set<std::int64_t> seen;
  for (const RunProgram& program : request.programs) {
    AUTOPAR_RETURN_IF_ERROR(verify(program, request.step.has_value()));
  }
  if (request.step) return verify_step(request);
  for (const RunProgram& program : request.programs) {
    if (program.ranks.empty() && request.programs.size() == 1) return Ok{};
    if (static_cast<std::int64_t>(program.ranks.size()) != program.mesh.size()) {
      return input_error(program.path + ": lists " + std::to_string(program.ranks.size()) +
                         " ranks, but its mesh " + to_text(program.mesh) + " has " +
                         std::to_string(program.mesh.size()));
    }
    for (std::int64_t rank : program.ranks) {
      if (rank >= 0 && rank < size && seen.insert(rank).second) continue;
      return input_error(program.path + ": rank " + std::to_string(rank) +
                         " must stand in one program once and be below " + std::to_string(size) +
                         ", the number of all ranks");
    }
  }
  return Ok{};
}

namespace {

bool is_given(const InputSource& source) {
  return source.kind == InputSource::Kind::kGiven || source.kind == InputSource::Kind::kState;
}

}  // namespace

Result<InputTensors> whole_inputs(const RunRequest& request, const Wiring& wiring,
                                  const Distributions& distributions) {
  InputTensors inputs;
  for (std::size_t p = 0; p < request.programs.size(); ++p) {
    for (std::size_t i = 0; i < request.programs[p].inputs.size(); ++i) {
      const BoundaryValue& input = request.programs[p].inputs[i];
      const InputSource& source = wiring.inputs[p][i];
      if (!is_given(source) || inputs.count(input.name) != 0) continue;
      AUTOPAR_TRY(tensor, whole_input(whole_of(input, source, wiring.micro_batches), request,
                                      distributions));
      inputs[input.name] = std::move(tensor);
    }
  }
  return inputs;
}

Result<Tensor> slice_of_input(const RunRequest& request, const BoundaryValue& input,
                              const InputSource& source, std::int64_t micro_batches,
                              const Distributions& distributions, const RankPlace& place) {
  const Mesh& mesh = place.program->mesh;
  const BoundaryValue value =
      source.cut ? with_micro_batches(input, *source.cut, micro_batches) : input;
  const Shape extent = local_shape(value.spec, value.shape, mesh);
  AUTOPAR_TRY(given, given_input(whole_of(input, source, micro_batches), request));
  if (given) {
    given->shape = value.shape;
    const Slice slice(*given, value.spec, mesh, place.position);
    return Tensor{value.dtype, extent, {static_cast<const char*>(slice.data()), slice.size()}};
  }
  return generate_block(value.name, value.dtype, value.shape, request.seed,
                        distribution_of(value, distributions),
                        slice_offsets(value.spec, value.shape, mesh, place.position), extent);
}

std::string update_of(const std::string& input, const std::string& pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern;
  return pattern.substr(0, star) + input + pattern.substr(star + 1);
}

namespace {

bool has_updates(const RunRequest& request) {
  for (const RunProgram& program : request.programs) {
    for (const BoundaryValue& input : program.inputs) {
      const std::string update = update_of(input.name, request.updates);
      for (const BoundaryValue& output : program.outputs) {
        if (output.name == update) return true;
      }
    }
  }
  return false;
}

}  // namespace

std::vector<std::string> unknown_data(const RunRequest& request) {
  std::vector<std::string> warnings;
  note_unknown(request, request.data, &RunProgram::inputs, "input", warnings);
  note_unknown(request, request.expected, &RunProgram::outputs, "output", warnings);
  if (request.updates != RunRequest().updates && !has_updates(request)) {
    warnings.push_back(no_updates(request.updates));
  }
  return warnings;
}

int thread_count(const RunRequest& request) {
  if (request.threads > 0) return request.threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace autopar
