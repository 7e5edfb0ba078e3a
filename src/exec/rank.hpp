// One rank: a session over the plan whose collectives call the rank's Communicator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/collective_ops.hpp"
#include "exec/profile.hpp"
#include "exec/record.hpp"
#include "exec/request.hpp"
#include "exec/tensors.hpp"

namespace autopar {

// Views of a program's weights, to be handed to its sessions. Not of vectors: ONNX Runtime's
// BatchNormalization in training mode writes over the statistics that it is given.
using SharedWeights = std::vector<std::pair<std::string, Ort::Value>>;

struct Rank {
  Rank(std::unique_ptr<Communicator> end, const RunRequest& request)
      : communicator(std::move(end)),
        place(program_of(request, communicator->rank())),
        collectives(*communicator, place.program->ranks) {}

  std::unique_ptr<Communicator> communicator;
  RankPlace place;
  CollectiveOps collectives;
  std::string why_no_gpu;  // where the communicator has a GPU that local ops do not run on
  SharedWeights weights;
  TraceFile trace;
  std::optional<Ort::Session> session;
  std::vector<Declared> inputs;   // of the file
  std::vector<Declared> outputs;  // of the file
  Ort::RunOptions run_options;
  std::function<Status()> meet;  // waits for all ranks, between runs
  RankRecord record;
};

// Whole outputs put together from the ranks; any number of threads may add to it.
class KeptOutputs {
 public:
  void add(const BoundaryValue& output, const Mesh& mesh, std::int64_t position,
           const Ort::Value& found);
  std::map<std::string, Tensor> take() { return std::move(tensors_); }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;
};

// Makes the rank's session, with a trace of its run if the request wants one. Errors (kInput): ONNX
// Runtime refuses the plan; its inputs or outputs are not the request's.
Status open_session(Rank& rank, Ort::Env& environment, const RunRequest& request);

// Runs the session on the rank's slices of the inputs, for every step, then as often again as
// is asked for, and gives the last outputs of its program in their order. Throws Ort::Exception.
std::vector<Ort::Value> run_rank(Rank& rank, const RunRequest& request, const InputTensors& inputs);

// The record's differences from the outputs of one rank, which are also put into `kept`.
void compare_rank(const RankPlace& place, int rank, const std::vector<Ort::Value>& outputs,
                  const Expected& expected, KeptOutputs* kept, RankRecord& record);

// Ends the trace of the runs, reads it and completes the record.
void finish_record(Rank& rank, const RunRequest& request);

}  // namespace autopar
