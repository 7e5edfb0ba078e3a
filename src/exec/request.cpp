#include "exec/request.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include "exec/blocks.hpp"
#include "exec/generate.hpp"

namespace autopar {

namespace {

using Tensors = std::map<std::string, Tensor>;

Status verify(const RunProgram& program) {
  for (const auto* values : {&program.inputs, &program.outputs}) {
    for (const BoundaryValue& value : *values) {
      if (auto status = verify(value.spec, value.shape, program.mesh); !status) {
        return input_error(program.path + ": '" + value.name + "': " + status.error().message);
      }
      if (value.spec.partial.empty()) continue;
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

Result<Tensor> input_slice(const BoundaryValue& input, const RunRequest& request,
                           const Distributions& distributions, const RankPlace& place) {
  const Mesh& mesh = place.program->mesh;
  const Shape extent = local_shape(input.spec, input.shape, mesh);
  AUTOPAR_TRY(given, given_input(input, request));
  if (given) {
    const Slice slice(*given, input.spec, mesh, place.position);
    return Tensor{input.dtype, extent, {static_cast<const char*>(slice.data()), slice.size()}};
  }
  return generate_block(input.name, input.dtype, input.shape, request.seed,
                        distribution_of(input, distributions),
                        slice_offsets(input.spec, input.shape, mesh, place.position), extent);
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
  std::int64_t size = 0;
  for (const RunProgram& program : request.programs) size += program.mesh.size();
  return size;
}

Status verify(const RunRequest& request) {
  if (request.programs.empty()) return input_error("there is no program to run");
  const std::int64_t size = world_size(request);
  std::set<std::int64_t> seen;
  for (const RunProgram& program : request.programs) {
    AUTOPAR_RETURN_IF_ERROR(verify(program));
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

RankPlace program_of(const RunRequest& request, int rank) {
  for (const RunProgram& program : request.programs) {
    if (program.ranks.empty()) return {&program, rank};
    const auto at = std::find(program.ranks.begin(), program.ranks.end(), rank);
    if (at != program.ranks.end()) return {&program, at - program.ranks.begin()};
  }
  AUTOPAR_CHECK(false, "no program has rank " + std::to_string(rank));
}

std::vector<RankPlace> places_of(const RunRequest& request) {
  std::vector<RankPlace> places(static_cast<std::size_t>(world_size(request)));
  for (const RunProgram& program : request.programs) {
    for (std::int64_t position = 0; position < program.mesh.size(); ++position) {
      const auto at = static_cast<std::size_t>(position);
      const std::int64_t rank = program.ranks.empty() ? position : program.ranks[at];
      places[static_cast<std::size_t>(rank)] = {&program, position};
    }
  }
  return places;
}

Result<InputTensors> whole_inputs(const RunRequest& request, const Distributions& distributions) {
  InputTensors inputs;
  for (const RunProgram& program : request.programs) {
    for (const BoundaryValue& input : program.inputs) {
      if (inputs.tensors.count(input.name) != 0) continue;
      AUTOPAR_TRY(tensor, whole_input(input, request, distributions));
      inputs.tensors[input.name] = std::move(tensor);
    }
  }
  return inputs;
}

Result<InputTensors> rank_inputs(const RunRequest& request, const Distributions& distributions,
                                 const RankPlace& place) {
  InputTensors inputs;
  inputs.whole = false;
  for (const BoundaryValue& input : place.program->inputs) {
    AUTOPAR_TRY(slice, input_slice(input, request, distributions, place));
    inputs.tensors[input.name] = std::move(slice);
  }
  return inputs;
}

std::string update_of(const std::string& input, const std::string& pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern;
  return pattern.substr(0, star) + input + pattern.substr(star + 1);
}

std::vector<std::string> unknown_data(const RunRequest& request) {
  std::vector<std::string> warnings;
  note_unknown(request, request.data, &RunProgram::inputs, "input", warnings);
  note_unknown(request, request.expected, &RunProgram::outputs, "output", warnings);
  return warnings;
}

int thread_count(const RunRequest& request) {
  if (request.threads > 0) return request.threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace autopar
