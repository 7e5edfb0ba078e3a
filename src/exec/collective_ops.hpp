// The ops of the domain ai.autopar as custom ops of ONNX Runtime. One set of op objects per rank:
// they hand every call to that rank's Communicator, and need ShardSlice only its position.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/runtime.hpp"

namespace autopar {

// What a rank's collectives have done so far. Written only by the thread that runs the session.
struct CollectiveTimes {
  struct Entry {
    int count = 0;
    Seconds seconds = 0;
    double bytes = 0;  // sent
  };
  using ByKind = std::map<std::string, Entry>;
  std::vector<ByKind> runs;            // the last one is under way
  bool wants_events = false;           // set before the first run
  std::vector<RunEvent> events;        // of what communicates; begin by steady_seconds()
  std::vector<Seconds> communicating;  // by run, in seconds
  int step = 0;                        // of the run under way
  int call = 0;                        // of the rank's programs in the step
  std::int64_t last_seq = -1;
  std::string out_of_order;  // the first call whose seq is below that of the call before it
  bool stopped = false;      // a call returned the communicator's error
};

// Adds a call that has just ended, of the rank whose times these are.
void note_call(CollectiveTimes& times, const CollectiveCall& call, int rank, Seconds begin);

// Groups of collectives that sessions have and the communicator does not know yet.
struct UnpreparedGroups {
  bool noted = false;  // else somebody prepares the communicator before the session runs
  std::vector<GroupPartition> partitions;
};

class CollectiveOp;

// Must outlive the sessions that use it.
class CollectiveOps {
 public:
  // `ranks`: of the program; empty: all.
  explicit CollectiveOps(Communicator& communicator, std::vector<std::int64_t> ranks = {});
  ~CollectiveOps();
  CollectiveOps(const CollectiveOps&) = delete;
  CollectiveOps& operator=(const CollectiveOps&) = delete;

  // The collectives take tensors where the CUDA provider has them. Before add_to().
  void use_gpu();
  // The communicator is prepared for a session's groups at its first collective, to which all ranks
  // of the world must come. Before add_to().
  void prepare_at_first_call() { unprepared_.noted = true; }
  void add_to(OrtSessionOptions* options);
  const CollectiveTimes& times() const { return times_; }
  // A run begins, of all steps.
  void begin_run() {
    times_.runs.emplace_back();
    times_.communicating.push_back(0);
    begin_call(0, 0);
  }
  // One of the sessions is about to run: the k-th call of a step.
  void begin_call(int step, int call) {
    times_.step = step;
    times_.call = call;
    times_.last_seq = -1;
  }
  // A message between programs that began at `begin` has ended.
  void note_message(const CollectiveCall& call, int rank, Seconds begin) {
    note_call(times_, call, rank, begin);
  }
  void want_events() { times_.wants_events = true; }
  // The communicator has returned an error outside the session.
  void stop() { times_.stopped = true; }

 private:
  std::vector<std::int64_t> ranks_;
  CollectiveTimes times_;
  UnpreparedGroups unprepared_;
  std::vector<std::unique_ptr<CollectiveOp>> ops_;
  Ort::CustomOpDomain domain_;
};

}  // namespace autopar
