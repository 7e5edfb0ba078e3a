// Times what the machine at hand can do and makes a Cluster of it.
//
//   Result<Measurements> measured = measure_threads(4, request);  // or ProcessWorld::measure
//   Calibration calibration = fit_cluster(*measured);
//   write_file_atomically(path, cluster_to_json(calibration.cluster));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

// A model of one op, timed on every rank at the same time, as the ranks of a plan run their ops.
struct TimedOp {
  std::string type;   // "MatMul", "Add"
  std::string model;  // an ONNX file's bytes, all shapes known
  DType dtype = DType::kFloat32;
  Shape left, right;      // of the first two inputs
  Flops flops = 0;        // 0: only memory counts
  double bytes = 0;       // read and written
  int copies = 1;         // of the op in the model; times, flops and bytes are of one
  bool of_model = false;  // of a user's model: says nothing of memory; 1 copy: all of it
  bool for_gpu = false;   // too large for a CPU: timed on a GPU alone
};

struct MeasureRequest {
  bool times_links = true;
  std::vector<Bytes> sizes;  // of the collectives: whole tensors, as total_bytes()
  std::vector<TimedOp> ops;
  int rounds = 7;             // the median of so many counts
  Seconds round_time = 2e-3;  // calls are repeated within a round until it takes about so long
  Seconds sample_time = 10;   // where rounds take longer in all, there are fewer, at least one
  int threads = 0;            // as RunRequest's
  Seconds timeout = 60;
};

// Spreads are over the rounds, of the mean time of a call; a round is as long as its slowest rank.
struct CollectiveSample {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::vector<std::int64_t> groups;  // flattened; all at the same time
  std::int64_t group_size = 1;
  double input_bytes = 0;
  Spread seconds;
};
struct OpSample {
  std::size_t op = 0;  // index into MeasureRequest::ops
  Spread seconds;
  std::string problem;  // why ONNX Runtime cannot run it; then there are no seconds
};
// An op while a collective of all ranks goes on beside it, on each of them.
struct OverlapSample {
  std::size_t op = 0;  // index into MeasureRequest::ops
  CollectiveKind kind = CollectiveKind::kAllReduce;
  double bytes = 0;               // of the collective's input
  Seconds alone = 0, beside = 0;  // a call of the op
  // Seconds that compute loses for each second of the collective, from 0 to 1.
  double slowdown() const { return beside > alone ? 1 - alone / beside : 0; }
};
struct Measurements {
  std::string ranks_are = "threads";  // as RunReport
  std::vector<std::string> hosts;     // by rank
  Bytes memory_bytes = 0;             // of a rank: its share of its machine, the least of all
  bool on_gpus = false;               // tensors lie in the memory of GPUs, which run the ops
  std::vector<CollectiveSample> collectives;
  std::vector<OpSample> ops;
  std::optional<OverlapSample> overlap;  // of the largest product of float32; none of one rank
};

// `ranks` threads of this process. Errors: kUsage for fewer than 2 ranks; kInput without ONNX
// Runtime; kRuntime naming rank and op.
Result<Measurements> measure_threads(int ranks, const MeasureRequest& request);

// The tiers that the ranks' machines make: "node" within one, "network" between them. Where ranks
// do not lie in equal runs on the machines, one tier, and the reason why.
struct Machines {
  std::vector<Tier> tiers;  // names and sizes only
  std::string problem;
};
Machines machines_of(const std::vector<std::string>& hosts);

struct Calibration {
  Cluster cluster;                   // without names
  std::vector<Seconds> collectives;  // what the cost model says with it, by sample
  std::vector<Seconds> ops;          // by sample
  // Of the collectives: root of the mean squared logarithm of fitted over measured time.
  double residual = 0;
  std::string problem;  // of the machines, as above
};

// Latency and bandwidth of every tier: those that minimise the squared logarithms of cost
// (collective_seconds) over measured time, none negative, so that half and double are as wrong.
// Gauss-Newton, in each round non-negative least squares by trying all sets of zeros (Lawson,
// Hanson, "Solving Least Squares Problems", 1974, chapter 23); O(samples * 2^(2 * tiers)) for each
// of 40 rounds. Peaks: of each dtype the fastest op of its flops (of a model: product). Memory
// bandwidth: of the largest op without flops. Four digits. `given`: its links and device stay.
Calibration fit_cluster(const Measurements& measurements, const std::vector<TimedOp>& ops,
                        const std::optional<Cluster>& given = std::nullopt);
// Peaks, memory and its bandwidth as measured.
Device measured_device(const Measurements& measurements, const std::vector<TimedOp>& ops);

}  // namespace autopar
