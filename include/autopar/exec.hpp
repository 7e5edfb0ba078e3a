// Runs a rewritten graph on its ranks and compares it with the unsharded model. ONNX Runtime
// (loaded at run time) runs the local ops; the ai.autopar ops are custom ops that call the rank's
// Communicator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autopar/partition.hpp"
#include "autopar/step.hpp"
#include "autopar/timeline.hpp"

namespace autopar {

// What a collective op of the program hands to the communicator.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string op_name;
  std::int64_t seq = -1;
  // Ordered global ranks of this rank's group. Send and Recv: the sender and the receiver.
  std::vector<std::int64_t> group;
  int position = 0;  // of this rank in the group
  int axis = 0;      // AllGather, ReduceScatter; AllToAll: split axis
  int concat_axis = 0;
  int root = 0;            // Broadcast: position in the group
  std::int64_t shift = 1;  // Permute: from the rank so many positions before, round the group
  std::string reduce_op;   // "sum", "max", "min", "prod", "avg"
  std::int64_t tag = 0;    // Send, Recv
  DType dtype = DType::kFloat32;
  Shape input_shape;  // Recv: none, and its input is null
  Shape output_shape;
  // Where the buffers are on a GPU: the stream on which they are filled and read, and on which the
  // collective is to be issued. Null: they are in host memory.
  void* stream = nullptr;
};

// All groups of one collective: the global ranks of all groups, flattened.
struct GroupPartition {
  std::vector<std::int64_t> groups;
  std::int64_t group_size = 1;
  bool of_messages = false;  // of Send and Recv: pairs of a sender and a receiver
  bool operator==(const GroupPartition&) const = default;
};

// One rank's end of the communication. Calls block; every error names rank and op. After one rank
// has failed all other calls return an error soon.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Makes what the groups need, once and in this order, which all ranks share. Every rank calls it
  // before its first call of run().
  virtual Status prepare(const std::vector<GroupPartition>& partitions) {
    static_cast<void>(partitions);
    return Ok{};
  }
  virtual Status run(const CollectiveCall& call, const void* input, void* output) = 0;
  // Messages between the programs of a step. Makes what these pairs of a sender and a receiver
  // need, once and in this order, which all ranks share.
  virtual Status prepare_messages(const std::vector<std::vector<std::int64_t>>& pairs) {
    static_cast<void>(pairs);
    return Ok{};
  }
  // Sends (a call of kSend) without waiting for the receiver; `input` may go when it returns. As
  // run(), where that does not wait.
  virtual Status post(const CollectiveCall& call, const void* input) {
    return run(call, input, const_cast<void*>(input));
  }
  // Waits for what was posted (a call of kRecv): the k-th from one rank to another is the k-th
  // taken.
  virtual Status take(const CollectiveCall& call, void* output) {
    return run(call, nullptr, output);
  }
  // Waits until all that was posted has been taken.
  virtual Status settle() { return Ok{}; }
  // Tells the other ranks to stop, giving the reason.
  virtual void abort(const std::string& reason) = 0;
};

// A tensor in memory of somebody else.
struct WeightView {
  DType dtype = DType::kFloat32;
  Shape shape;
  const void* data = nullptr;
};

// One SPMD program and the ranks that run it: all ranks of the world, or those of a pipeline stage.
struct RunProgram {
  std::string path;  // plan.onnx
  // What runs where it is not the file at `path`: an ONNX model in memory, whose external data lies
  // in the folder of `path`.
  std::shared_ptr<const std::string> bytes = {};
  Mesh mesh;
  std::vector<BoundaryValue> inputs;  // whole shapes and specs, from the plan
  std::vector<BoundaryValue> outputs;
  // Global ranks in the mesh's order; empty: 0, 1, ... for the only program there is.
  std::vector<std::int64_t> ranks = {};
  // Of its collectives, in the order in which they are issued.
  std::vector<GroupPartition> partitions = {};
  std::string sha256 = {};  // of what runs; all ranks must have the same
  // By position in `ranks`: the same program beside the rank's own weights; empty: `path` for all.
  std::vector<std::string> rank_paths = {};
  // Initializers of the program, held once for all ranks: those of two dimensions and more that are
  // here. The others each rank loads for itself.
  std::map<std::string, Tensor> weights = {};
  // The same of initializers that are elsewhere in memory, such as in mapped files.
  std::map<std::string, WeightView> weight_views = {};
  std::vector<std::shared_ptr<const void>> weight_owners = {};
};

// How data are drawn: real numbers from the normal distribution, integers and bool evenly from the
// `indices` numbers from the mean on.
struct Distribution {
  double mean = 0;
  double deviation = 0.1;
  std::int64_t indices = 2;
  bool operator==(const Distribution&) const = default;
};
// For every input of a model a distribution with which its outputs are finite and depend on all of
// them, as far as the ops that read the input tell: unit variance for what is multiplied with
// weights, Glorot's for weights, round 1 for scales and for what must be positive (a variance),
// little for moving averages, all of a table's indices for what indexes it, no 0 among integers
// that are divided by. O(inputs * ops) at worst.
std::map<std::string, Distribution> distributions_of(const Graph& model);
// A jump is an op whose result leaps where its real input changes by no more than rounding: it
// compares, rounds or takes an index. ReLU itself is none, the comparison in its gradient is. By
// floating-point output of a model the nearest jump upstream of it that reads what was computed, as
// "Greater 'relu.grad'"; an output without one is not there. What is the same on every rank to the
// last bit (given inputs, and sums and products of single elements of them) crosses no jump. In
// several steps outputs are inputs' next values, as `updates` in RunRequest says. O(ops) per step
// until nothing changes.
std::map<std::string, std::string> jumps_of(const Graph& model, int steps,
                                            const std::string& updates);

// The same of the programs of a step, which pass values by name.
struct GraphOfStep {
  const Graph* graph = nullptr;
  bool is_pass = false;  // what it gives as `new.X`, it reads as X in the same step
};
std::map<std::string, std::string> jumps_of(const std::vector<GraphOfStep>& programs, int steps,
                                            const std::string& updates);

// By output the floating-point type with the fewest digits in which something upstream of it is
// calculated, where that is coarser than its own: float32 gradients of passes in float16.
std::map<std::string, DType> coarser_types_of(const Graph& model, int steps,
                                              const std::string& updates);
std::map<std::string, DType> coarser_types_of(const std::vector<GraphOfStep>& programs, int steps,
                                              const std::string& updates);

struct RunRequest {
  std::vector<RunProgram> programs;
  // How the programs, which are those of the step in its order, make a step of several actions.
  // Nothing: every rank runs its one program once, and no value passes from one to another.
  std::optional<Step> step = {};
  // The step whose results are expected in place of a model's: the passes of the unsharded model on
  // one rank. Its data are this request's.
  std::shared_ptr<const RunRequest> passes = {};
  std::string model_path = {};  // the unsharded model; empty: compare with `expected` only
  std::shared_ptr<const std::string> model_bytes = {};  // as RunProgram::bytes
  bool may_lack_expected = false;                       // outputs that neither has are no failure
  std::map<std::string, Tensor> data = {};  // given inputs; the others come from the seed
  // Reads a given input that is not in `data`; nothing: it is not given. May be empty.
  std::function<Result<std::optional<Tensor>>(const std::string&)> read_data = {};
  std::map<std::string, Distribution> distributions = {};  // of the others; rank 0's count
  std::map<std::string, Tensor> expected = {};             // given outputs, of the last step
  std::uint64_t seed = 0;
  int threads = 0;  // ONNX Runtime's on each machine, shared by its ranks; 0: one per core
  // So many runs, each with the outputs of the one before as inputs where `updates` names the pair:
  // `*` in it stands for the input's name. What is compared is what the last step gives.
  int steps = 1;
  std::string updates = kNextPattern;
  // Timed runs after the first, each with the same inputs and all steps; what is compared is what
  // the last one gives. 0: the only run is timed.
  int repeat = 0;
  // |a-b| <= atol + rtol*|b|, wider for 16-bit types; for the next value of an input relative to
  // its change instead of |b|, where that is less.
  double rtol = 2e-4;
  double atol = 2e-5;
  // As jumps_of gives them: elements that OutputComparison::excused_elements counts are no failure.
  // Outputs that are not here have no excuse.
  std::map<std::string, std::string> jumps = {};
  // Of the next value of what Adam trains, the output that is the next mean of its gradient. Adam
  // divides by the gradient's size, so of one that is nothing but rounding the sign is left: such
  // elements are no failure either. Those that are not here have no such excuse.
  std::map<std::string, std::string> gradients = {};
  // As coarser_types_of gives them: these outputs agree as what is calculated in that type does.
  std::map<std::string, DType> coarser_types = {};
  // A collective fails and names the ranks that are missing when for so long nothing has happened
  // on any rank. Ranks that wait for each other are found at once.
  Seconds timeout = 60;
  // Let ONNX Runtime fold, fuse and lay out ops anew: times are then by the fused ops, and every
  // session has its own copy of what is folded from the weights.
  bool optimize = false;
  bool profile = true;        // fill RunReport::times with the local ops too
  bool keep_outputs = false;  // fill RunReport::values
  bool timeline = false;      // fill RunReport::events; needs `profile`
};

// Whether the programs fit together, as every run finds out first: ranks, layouts and, in a step,
// the values that pass from one to another and the order in which they do. Errors: kInput.
Status verify_request(const RunRequest& request);

// All ranks' slices of one output against the expected tensor, the worst of all.
struct OutputComparison {
  std::string name;
  std::string against;  // "model", "data", "model and data"; empty: there was nothing
  double max_absolute_error = 0;
  double max_relative_error = 0;  // an expected value counts as >= 1/1000 of the largest
  std::size_t nan_elements = 0;   // NaN on both sides: they agree, but show nothing
  // Beyond the tolerance, but no more than rounding does behind `jump`.
  std::size_t excused_elements = 0;
  std::string jump;       // at which op; empty: nothing is excused
  std::string criterion;  // what agreeing means here: "|difference| <= 2e-05 + 0.0002 |expected|"
  bool matches = false;
  std::string problem;  // why it does not match: shape, type, first element, nothing to compare
};
struct TimedKind {
  std::string kind;  // op type
  bool collective = false;
  int count = 0;        // calls on rank 0, in one run
  Seconds seconds = 0;  // summed over its calls, mean over the ranks; of several runs the median
  double bytes = 0;     // sent per rank; collectives only
  Spread spread = {};   // of `seconds` over the timed runs
};
// Where the time of one rank goes, in the run whose wall time is the median (of an even number the
// lower of the two). What is left of `wall` is ONNX Runtime's own between the ops.
struct RankTimes {
  Seconds wall = 0;
  Seconds local = 0;        // ops that do not communicate
  Seconds collectives = 0;  // those that do
  Seconds waiting = -1;     // of `collectives`: until the last rank came; negative: not known
};
struct RunReport {
  int ranks = 0;
  std::string ranks_are = "threads";  // "processes by Open MPI v4.1.4"
  std::vector<OutputComparison> outputs;
  std::vector<TimedKind> times;            // slowest first
  std::vector<RankTimes> rank_times = {};  // by rank
  int timed_runs = 1;
  Seconds wall = 0;         // of a run with all its steps, the slowest rank; the median of several
  Spread wall_spread = {};  // over the timed runs
  std::vector<RunEvent> events = {};  // by rank, then by begin; if asked for
  Seconds reference_wall = 0;
  std::map<std::string, Tensor> values;  // whole outputs put together from the ranks, if kept
  std::vector<std::string> warnings;
  bool passed = false;  // every output matches
};

// N ranks as threads of this process. Reductions go in the order of the group: bit-reproducible.
// Inputs that are not given come from the seed, by their distribution (where there is none: 0.1 *
// N(0,1) or, for integers and bool, 0 and 1); every rank gets its slice of the same whole tensor.
// The expected outputs are `expected` and what the model at `model_path` gives in ONNX Runtime;
// where both are there, both must agree. The tolerance is wider for 16-bit types (at least 8 units
// in the last place relative, 2 units of 1.0 absolute); integers and bool must be equal; NaN and
// infinities must stand at the same places. Errors: ErrorCode::kRuntime naming rank and op; kInput
// where the plan, model or data do not fit, or where there is no ONNX Runtime library.
Result<RunReport> run_threads(const RunRequest& request);

struct MeasureRequest;  // autopar/calibrate.hpp
struct Measurements;

// Ranks as processes: this process is one of those that a launcher has started (mpirun, srun,
// torchrun). Joining is collective, and so is everything else here.
//
//   Result<std::unique_ptr<ProcessWorld>> world = ProcessWorld::join("mpi", 60);
//   Result<RunReport> report = world->run(request);
//   return world->leave(report.ok() ? Status(Ok{}) : Status(report.error()), print);
//
// The ranks are joined by a TCP connection each to rank 0, over which results come together and by
// which the end of a process is noticed: then rank 0 says on stderr which rank it was, and every
// process ends within seconds with exit code 5.
class ProcessWorld {
 public:
  // `ranks_by`: "mpi" or "nccl". Errors: kUsage where no launcher's variables are there; kInput
  // where the library is missing; kRuntime where the ranks do not find each other within `timeout`.
  static Result<std::unique_ptr<ProcessWorld>> join(const std::string& ranks_by, Seconds timeout);
  // Whether this process is to say why join() failed. The ranks do not know each other then, so
  // that it is one on each machine: rank 0 at once, the others a second later, since a launcher has
  // most often ended them by then. Blocks until then.
  static bool says_why_not_joined();
  ~ProcessWorld();
  ProcessWorld(const ProcessWorld&) = delete;
  ProcessWorld& operator=(const ProcessWorld&) = delete;

  int rank() const;
  int size() const;
  // What else is to be done where the process must end at once, from another thread.
  void on_sudden_end(std::function<void()> action);
  // As run_threads. The report is whole on rank 0; elsewhere it only says whether all passed.
  // Errors of any rank are rank 0's error.
  Result<RunReport> run(const RunRequest& request);
  // As measure_threads; every rank gets the whole.
  Result<Measurements> measure(const MeasureRequest& request);
  // The last call. Where a rank has an error, rank 0 says the first that it learnt of; then all
  // end. The error has been said, or told to rank 0, and need not be said again.
  Status leave(const Status& own, const std::function<void(const Error&)>& say);

 private:
  struct State;
  explicit ProcessWorld(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The version of the ONNX Runtime library that run would use, or why there is none.
Result<std::string> onnx_runtime_version();

}  // namespace autopar
