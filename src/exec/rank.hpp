// One rank: a session over each of its programs, whose collectives call the rank's Communicator.
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
#include "exec/feeds.hpp"
#include "exec/profile.hpp"
#include "exec/record.hpp"
#include "exec/request.hpp"
#include "exec/tensors.hpp"
#include "exec/wiring.hpp"

namespace autopar {

// Views of a program's weights, to be handed to its sessions. Not of vectors: ONNX Runtime's
// BatchNormalization in training mode writes over the statistics that it is given.
using SharedWeights = std::vector<std::pair<std::string, Ort::Value>>;

// One program of a rank.
struct RankProgram {
  RankPlace place;
  SharedWeights weights;
  TraceFile trace;
  std::optional<Ort::Session> session;
  std::vector<Declared> inputs;          // of the file
  std::vector<Declared> outputs;         // of the file
  std::vector<std::size_t> input_index;  // into the program's inputs, by input of the file
  std::vector<std::size_t> output_index;
};

struct Rank {
  Rank(std::unique_ptr<Communicator> end, const RunRequest& request, const Wiring& wiring);

  std::unique_ptr<Communicator> communicator;
  std::vector<ResultPlace> results;  // what it has a slice of when the run ends
  CollectiveOps collectives;
  std::string why_no_gpu;  // where the communicator has a GPU that local ops do not run on
  std::vector<std::unique_ptr<RankProgram>> programs;  // of the request; null: another rank's
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

// Makes the rank's sessions, with traces of their runs if the request wants them. Errors (kInput):
// ONNX Runtime refuses a program; its inputs or outputs are not the request's.
Status open_sessions(Rank& rank, Ort::Env& environment, const RunRequest& request);

// The groups of all of the rank's programs, and all messages of the world.
Status prepare(Rank& rank, const RunRequest& request, const Wiring& wiring);

// Makes the rank's calls on what it is fed, for every step, then as often again as is asked for,
// and gives the slices of the rank's results in their order. Throws Ort::Exception.
std::vector<Ort::Value> run_rank(Rank& rank, const RunRequest& request, const Wiring& wiring,
                                 const RankFeeds& feeds);

// The record's differences from the results of one rank, which are also put into `kept`.
void compare_rank(const Rank& rank, const Wiring& wiring, const std::vector<Ort::Value>& results,
                  const Expected& expected, KeptOutputs* kept, RankRecord& record);

// Ends the traces of the runs, reads them and completes the record.
void finish_record(Rank& rank, const RunRequest& request, const Wiring& wiring);

}  // namespace autopar
