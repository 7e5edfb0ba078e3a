// What a request asks for, apart from how ranks run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

// Errors (kInput): no program; specs that do not fit; ranks that no program or several have.
Status verify(const RunRequest& request);
std::int64_t world_size(const RunRequest& request);

// The program of a rank, and the rank's position in its mesh. Precondition: verified.
struct RankPlace {
  const RunProgram* program = nullptr;
  std::int64_t position = 0;
};
RankPlace program_of(const RunRequest& request, int rank);
std::vector<RankPlace> places_of(const RunRequest& request);  // by rank, O(ranks)

// Inputs by name: whole, or a rank's slices of its own program's.
struct InputTensors {
  std::map<std::string, Tensor> tensors;
  bool whole = true;
};
// Every input of any program: given, else from the seed, by these distributions and not by the
// request's own.
Result<InputTensors> whole_inputs(const RunRequest& request,
                                  const std::map<std::string, Distribution>& distributions);
// What one rank is fed, and no more: in memory are its slices and one given tensor.
Result<InputTensors> rank_inputs(const RunRequest& request,
                                 const std::map<std::string, Distribution>& distributions,
                                 const RankPlace& place);

// The name of the output that is the input's next value.
std::string update_of(const std::string& input, const std::string& pattern);

// Given data that no program reads or makes.
std::vector<std::string> unknown_data(const RunRequest& request);

// ONNX Runtime's threads: as the request says, else the cores of the machine.
int thread_count(const RunRequest& request);

}  // namespace autopar
