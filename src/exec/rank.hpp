// One rank: a session over the plan whose collectives call the rank's Communicator.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exec/collective_ops.hpp"
#include "exec/profile.hpp"
#include "exec/tensors.hpp"
#include "exec/verdict.hpp"

namespace autopar {

struct Rank {
  explicit Rank(std::unique_ptr<Communicator> end)
      : communicator(std::move(end)), collectives(*communicator) {}

  std::unique_ptr<Communicator> communicator;
  CollectiveOps collectives;
  std::optional<Ort::Session> session;
  std::vector<Declared> inputs;   // of the file
  std::vector<Declared> outputs;  // of the file
  Ort::RunOptions run_options;
  std::chrono::steady_clock::time_point finished;  // the run, not the comparison
  std::vector<RankDifference> differences;         // by output of the request
};

// Whole outputs put together from the ranks; any number of threads may add to it.
class KeptOutputs {
 public:
  void add(const BoundaryValue& output, const Mesh& mesh, int rank, const Ort::Value& found);
  std::map<std::string, Tensor> take() { return std::move(tensors_); }

 private:
  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;
};

// Views of the request's weights, to be handed to all sessions. Not of vectors: ONNX Runtime's
// BatchNormalization in training mode writes over the statistics that it is given.
using SharedWeights = std::vector<std::pair<std::string, Ort::Value>>;
SharedWeights share_weights(const std::map<std::string, Tensor>& weights);

// Makes the rank's session, with a trace of its run in `traces` unless that has no path; the
// weights must outlive it. Errors (kInput): ONNX Runtime refuses the plan; its inputs or outputs
// are not the request's.
Status open_session(Rank& rank, Ort::Env& environment, const RunRequest& request,
                    const SharedWeights& weights, const TraceFolder& traces);

// Runs the session on the rank's slices of the whole inputs and compares its slices of the outputs;
// `after_run` is called in between. Throws Ort::Exception.
void run_rank(Rank& rank, const RunRequest& request, const std::map<std::string, Tensor>& inputs,
              const Expected& expected, const std::function<void()>& after_run, KeptOutputs* kept);

// Ends the trace of the run and reads it.
std::map<std::string, KernelTimes> read_trace(Rank& rank);

}  // namespace autopar
