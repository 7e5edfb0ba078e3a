#include "exec/request.hpp"

#include <algorithm>
#include <set>
#include <thread>

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

Result<Tensor> whole_input(const BoundaryValue& input, const RunRequest& request,
                           const Distributions& distributions) {
  const auto given = request.data.find(input.name);
  if (given == request.data.end()) {
    const auto known = distributions.find(input.name);
    return generate(input.name, input.dtype, input.shape, request.seed,
                    known == distributions.end() ? Distribution{} : known->second);
  }
  const Tensor& tensor = given->second;
  if (tensor.dtype != input.dtype || tensor.shape != input.shape) {
    return input_error("data for input '" + input.name + "': expected " + name_of(input.dtype) +
                       to_text(input.shape) + ", found " + name_of(tensor.dtype) +
                       to_text(tensor.shape));
  }
  return tensor;
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

Result<Tensors> whole_inputs(const RunRequest& request, const Distributions& distributions) {
  Tensors tensors;
  for (const RunProgram& program : request.programs) {
    for (const BoundaryValue& input : program.inputs) {
      if (tensors.count(input.name) != 0) continue;
      AUTOPAR_TRY(tensor, whole_input(input, request, distributions));
      tensors[input.name] = std::move(tensor);
    }
  }
  return tensors;
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
