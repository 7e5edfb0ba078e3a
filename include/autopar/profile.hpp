// What the runtime makes of a machine: which ops are one kernel, how near to its peaks the kernels
// and collectives come, and what issuing them costs. Without one prices are ideal: every op is a
// kernel of its own that reaches the peaks, and costs no launch.
#pragma once

#include <cstdint>
#include <string>

#include "autopar/support.hpp"

namespace autopar {

// Products of [m, k] and [k, n] matrices, `batch` of them: time = FLOPs / (peak x efficiency), the
// efficiency being fraction x k / (k + half_k) x batch m n / (waves tile_m tile_n multiprocessors),
// where a wave is a tile of tile_m x tile_n on every multiprocessor, whole tiles. Where that leaves
// fewer of them idle, the products of a tile are shared by 2, 4, 8... multiprocessors, each with a
// part of k that is `least_k` long or longer. Tensor cores are fed 16 bytes at a time: where rows
// of a matrix are only multiples of 2 bytes long, `unaligned` of that is left, and of 4 and 8 bytes
// the parts between, by the logarithm.
struct MatrixEfficiency {
  double fraction = 1;
  double half_k = 0;              // 0: a short k costs nothing
  double tile_m = 0, tile_n = 0;  // 0: tiles and waves cost nothing
  double multiprocessors = 0;
  double least_k = 0;    // 0: a tile is never shared
  double unaligned = 1;  // 1: it costs nothing
  bool operator==(const MatrixEfficiency&) const = default;
};

// Products inside a fused attention: `forward` or `backward` of the peak of the type, on the FLOPs
// that the kernel does (a causal mask halves them), times length / (length + half_length), the
// length being the longest side of the product (keys or queries), times heads / (heads +
// half_heads), the heads of all samples on a rank.
struct AttentionEfficiency {
  double forward = 1, backward = 1;
  double half_length = 0;  // 0: a short sequence costs nothing
  double half_heads = 0;   // 0: few heads cost nothing
  bool operator==(const AttentionEfficiency&) const = default;
};

// Kernels bound by memory: time = (bytes + half_bytes) / (bandwidth x the fraction of their kind).
struct MemoryEfficiency {
  double fraction = 1;
  double half_bytes = 0;     // of a kernel that reaches half of that
  double normalisation = 0;  // of kernels with sums over rows in passes; 0: as all others
  double gather = 0;         // of rows taken from a table by index; 0: as all others
  bool operator==(const MemoryEfficiency&) const = default;
};

// Collectives that go on beside compute; it waits for all others.
struct Deferred {
  bool all_reduce = true;      // sums of gradients that all ranks get, until the update
  bool reduce_scatter = true;  // those of which each rank gets its part, until the update
  bool gather = true;          // gathers of stored weights, which are fetched ahead
  bool update = false;         // gathers of updated weights, until the next step reads them
  bool operator==(const Deferred&) const = default;
};

struct Profile {
  std::string name;  // empty: ideal

  // Every op of the graph is run and launched by itself, also one that only views what it reads,
  // and a collective: as graph runtimes do on CPUs. Then nothing below is.
  bool runs_op_by_op = false;
  // What runs as one kernel.
  bool fuses_elementwise = false;    // chains of ops on elements, with the sums over rows in them
  bool fuses_normalisation = false;  // those chains that have a sum over rows in them
  bool fuses_attention = false;      // attention, without its scores in memory
  bool fuses_optimizer = false;      // the updates of all parameters are one kernel
  bool has_strides = false;          // transposed, sliced and broadcast operands are read in place

  Seconds launch_s = 0;  // of a kernel, on the device
  Seconds host_s = 0;    // of a kernel, on the host, which issues them one after the other
  // In a pipeline over several machines, where the host cannot run ahead: more of each collective
  // that compute waits for in a pass, and more for each of the ranks in it.
  Seconds stage_collective_s = 0, stage_collective_rank_s = 0;
  MatrixEfficiency matrix;
  AttentionEfficiency attention;
  MemoryEfficiency memory;

  // Collectives of the update, of what waits for it, and gathers of stored weights go together in
  // messages of so many bytes, so that one pays its share of the latencies; 0: each pays all.
  double bucket_bytes = 0;
  Deferred deferred;
  // Seconds that compute loses for each second of a collective beside it, to the multiprocessors
  // and the memory bandwidth that this takes.
  double slowdown = 0;
  // Of the collectives of activations that compute waits for: the part that is done piece by piece
  // beside the products that make or read them.
  double pipelined = 0;

  // Of a parameter that passes read, for each of its elements: what the runtime holds from the
  // first pass to the update for its gradient, accumulators among them. 0: what the plan holds.
  double gradient_bytes = 0;
  // The same for the gradient of one pass: from where the backward pass makes it to the pass's end.
  double pass_gradient_bytes = 0;
  // What is repeated for the backward pass are whole segments, with the ops at their ends whose
  // results nobody reads again.
  bool repeats_whole_segments = false;
  // Queries, keys and values are as large, and made in one piece of memory; keys and values are
  // copied from there, and the piece stays for as long as its queries are needed.
  bool joins_attention_inputs = false;

  // Memory beside what plans are made of.
  Bytes reserved_bytes = 0;  // of the runtime, its libraries and the buffers of collectives
  double fragmentation = 0;  // what the allocator wastes, as a part of what plans are made of

  // What a plan that holds so many bytes takes at most, and what it may hold to take no more.
  Bytes upper_memory(Bytes bytes) const;
  Bytes room_in(Bytes memory) const;

  // Whether what is priced is a stage of such a pipeline: set with the cluster of the stage, and
  // in no file.
  bool of_stage = false;
  // On the host, of such a collective of so many ranks.
  Seconds waited_host_s(std::int64_t ranks) const;

  bool ideal() const { return name.empty(); }
  bool operator==(const Profile&) const = default;
};
// Fractions in (0, 1], nothing below 0. The message names the field.
Status verify(const Profile& profile);

}  // namespace autopar
