// Runs a rewritten graph on its ranks and compares it with the unsharded model. ONNX Runtime
// (loaded at run time) runs the local ops; the ai.autopar ops are custom ops that call the rank's
// Communicator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autopar/partition.hpp"

namespace autopar {

// What a collective op of the program hands to the communicator.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string op_name;
  std::int64_t seq = -1;
  std::vector<std::int64_t> group;  // ordered global ranks of this rank's group
  int position = 0;                 // of this rank in the group
  int axis = 0;                     // AllGather, ReduceScatter; AllToAll: split axis
  int concat_axis = 0;
  int root = 0;           // Broadcast: position in the group
  std::string reduce_op;  // "sum", "max", "min", "prod", "avg"
  DType dtype = DType::kFloat32;
  Shape input_shape;
  Shape output_shape;
};

// One rank's end of the communication. Calls block; every error names rank and op. After one rank
// has failed all other calls return an error soon.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Status run(const CollectiveCall& call, const void* input, void* output) = 0;
  // Tells the other ranks to stop, giving the reason.
  virtual void abort(const std::string& reason) = 0;
};

struct RunRequest {
  std::string plan_path;   // plan.onnx
  std::string model_path;  // the unsharded model; empty: compare with `expected` only
  Mesh mesh;
  std::vector<BoundaryValue> inputs;  // whole shapes and specs, from the plan
  std::vector<BoundaryValue> outputs;
  std::map<std::string, Tensor> data;      // given inputs; the others come from the seed
  std::map<std::string, Tensor> expected;  // given outputs
  std::uint64_t seed = 0;
  int threads = 0;     // ONNX Runtime's threads over all ranks; 0: one per core
  double rtol = 2e-4;  // |a-b| <= atol + rtol*|b|, wider for 16-bit types
  double atol = 2e-5;
  Seconds timeout = 60;  // a collective that waits longer names the ranks that are missing
};

struct OutputComparison {
  std::string name;
  double max_absolute_error = 0;
  double max_relative_error = 0;
  bool matches = false;
  std::string problem;  // shape or type mismatch, NaN on one side
};
struct TimedKind {
  std::string kind;  // op type
  bool collective = false;
  int count = 0;        // calls on rank 0
  Seconds seconds = 0;  // summed over its calls, mean over the ranks
  double bytes = 0;     // sent per rank; collectives only
};
struct RunReport {
  int ranks = 0;
  std::vector<OutputComparison> outputs;
  std::vector<TimedKind> times;  // slowest first
  Seconds wall = 0;
  Seconds reference_wall = 0;
  bool passed = false;
};

// N ranks as threads of this process. Reductions go in the order of the group: bit-reproducible.
// Errors: ErrorCode::kRuntime naming rank and op; kInput where the plan, model or data do not fit.
Result<RunReport> run_threads(const RunRequest& request);

// The version of the ONNX Runtime library that run would use, or why there is none.
Result<std::string> onnx_runtime_version();

}  // namespace autopar
