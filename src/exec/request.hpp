// What a request asks for, apart from how ranks run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

// Errors (kInput): no program; specs that do not fit; ranks that no program or several have, but
// those of a step.
Status verify(const RunRequest& request);
std::int64_t world_size(const RunRequest& request);

// A program of a rank, and the rank's position in its mesh.
struct RankPlace {
  const RunProgram* program = nullptr;
  std::int64_t position = 0;
};

struct Wiring;
struct InputSource;

// Whole inputs by name, as the unsharded model reads them.
using InputTensors = std::map<std::string, Tensor>;
// Every input of any program that no program makes before it is read: given, else from the seed, by
// these distributions and not by the request's own.
Result<InputTensors> whole_inputs(const RunRequest& request, const Wiring& wiring,
                                  const std::map<std::string, Distribution>& distributions);
// A rank's slice of one of them, and no more: in memory are the slice and one given tensor. Of an
// input of which micro-batches read parts it is as with_micro_batches() has it.
Result<Tensor> slice_of_input(const RunRequest& request, const BoundaryValue& input,
                              const InputSource& source, std::int64_t micro_batches,
                              const std::map<std::string, Distribution>& distributions,
                              const RankPlace& place);

// The name of the output that is the input's next value.
std::string update_of(const std::string& input, const std::string& pattern);

// Given data that no program reads or makes.
std::vector<std::string> unknown_data(const RunRequest& request);

// ONNX Runtime's threads: as the request says, else the cores of the machine.
int thread_count(const RunRequest& request);

}  // namespace autopar
