// How to get from one Spec to another, and what that takes: one answer for pricing and rewriting.
//
//   Resharder resharder(shape, dtype, mesh, cluster);
//   Reshard r = resharder.path(from, to);   // r.steps: [ReduceScatter {nvlink} axis 0, ...]
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autopar/allowance.hpp"
#include "autopar/layout.hpp"

namespace autopar {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kPermute,      // round a ring: the input of the rank so many positions before in the group
  kShardSlice,   // local: the part at the rank's position in the group
  kMakePartial,  // local: position 0 of the group keeps its input, the others hold zeros
  // A message from the first to the second of each group of two ranks. Between the programs of
  // pipeline stages and in graphs that users wrote: no Reshard has them, no search meets them.
  kSend,  // gives its input back, so that later ops can wait for it
  kRecv,  // reads no tensor; a rank that is not the second of a group gets zeros
};
// The ONNX op type in the domain ai.autopar ("AllReduce"); kMakePartial: "MakePartial", which
// exists only before lowering (it becomes Where over a ShardSlice of a constant).
const char* name_of(CollectiveKind kind);
std::optional<CollectiveKind> parse_collective_kind(const std::string& op_type);
bool communicates(CollectiveKind kind);
// Of any op: whether it is a ShardSlice, and whether ranks exchange data in it.
bool is_slice(const Op& op);
bool exchanges_data(const Op& op);
// The `reduce_op` of a collective, "sum" where it has none; an average is a sum: the same bytes
// over the same groups. None: another text.
std::optional<Reduction> reduction_of(const Op& op);
inline bool has_reduction(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}
inline bool is_message(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
}

// One collective over the groups of devices that differ only along `axes`.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  AxisList axes;         // mesh axes; the first varies slowest within a group
  int axis = -1;         // tensor dimension that is gathered, scattered, sliced; AllToAll: split
  int concat_axis = -1;  // AllToAll only: tensor dimension that is put together
  Reduction reduction = Reduction::kSum;
  bool operator==(const Collective&) const = default;
};
// "AllGather {nvlink} 0", "AllToAll {ib,nvlink} 1 0" (split, concat), "AllReduce {ib} max".
std::string to_text(const Collective& collective, const Mesh& mesh);

// Bytes that one device sends, given the local bytes of its input (ring algorithms: AllReduce
// 2(n-1)/n, AllGather n-1, ReduceScatter, AllToAll, Broadcast (n-1)/n times the input; Permute,
// Send: the input, Recv: nothing).
double sent_bytes(const Collective& collective, double input_bytes, const Mesh& mesh);
double sent_bytes(CollectiveKind kind, double input_bytes, std::int64_t group_size);

// Alpha-beta time. A group is split by the tiers that it crosses; every phase runs at its tier's
// per-device bandwidth on the data that is left for that tier: AllReduce, ReduceScatter and
// AllGather take an outer tier's phase on 1/m of the data, where m members of the group lie within
// the tier's own members. Groups that run at the same time on one slow link share it: each device
// brings its own part of the bandwidth, so a group with m devices on a node has m parts. A phase
// has ceil(log2 n) latencies. AllToAll: the fastest of sending to every peer directly (one latency
// per peer, each tier carries what crosses it), tier by tier (n-1 latencies, or for short messages
// Bruck's ceil(log2 n) rounds with half of the data each), and axis by axis. A phase on a tier is
// never faster than on the tiers inside, which its messages pass. A tier's efficiency is read at
// the bytes that a device sends in the phase, linear in their logarithm, clamped at both ends.
// Where a tier says so, AllGather, ReduceScatter and Broadcast across it also wait for every step
// of a ring of all ranks, AllReduce for those of a tree of its members, up and down, Permute for
// one (Tier::ring_step_s). Local steps: what they read and
// write over the memory bandwidth, plus kLocalStepSeconds. Every step takes more than no time. Of
// a mesh also the launch, where the profile says that each collective is an op to run.
// Joint collectives are never dearer than one axis after the other. Broadcast: the phases of
// AllGather, in each of which a device hands on all of the data, as in a ring. Permute, Send and
// Recv: one phase with one latency on the outermost tier that the group crosses; the input of Recv
// is what arrives. Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 2005, section 3; hierarchy as in NCCL's per-node rings.
inline constexpr Seconds kLocalStepSeconds = 1e-6;
Seconds collective_seconds(const Collective& collective, double input_bytes, const Mesh& mesh,
                           const Cluster& cluster);
// The same for groups of any ranks, flattened, that run at the same time: the slowest of them.
// Where a tier holds different numbers of a group's ranks, the most set the phase within it, the
// fewest what is left to be sent across it. AllToAll: not axis by axis, which groups do not tell.
// O(ranks in groups * tiers).
Seconds collective_seconds(CollectiveKind kind, double input_bytes,
                           const std::vector<std::int64_t>& groups, std::int64_t group_size,
                           const Cluster& cluster);

// The names of the tiers that one of the groups crosses, innermost first: "nvlink,ib".
std::string crossed_tiers(const std::vector<std::int64_t>& groups, std::int64_t group_size,
                          const Cluster& cluster);

// What a collective saves by going with others in messages of the profile's `bucket_bytes`: its
// part of the latencies. `seconds`: of all its bytes; `latency`: of one byte; `sent_bytes`: by a
// device.
Seconds saved_in_bucket(const Profile& profile, Seconds seconds, Seconds latency,
                        double sent_bytes);

// The cheapest sequence between two specs of one tensor.
struct Reshard {
  std::vector<Collective> steps;  // empty: nothing to do
  // What a step's dimensions are: the tensor's own, or with some cut into several, so that a step
  // can act where a device holds several blocks of a dimension. Then a device views what it has in
  // input_shape() of the step (a Reshape, which moves nothing and takes no time), and after the
  // last step in the target's local shape.
  std::vector<Shape> shapes;
  std::vector<Spec> specs;  // after each step, over its shape; the last layout is the target's
  Seconds seconds = 0;
  // Largest sum of a step's local input and output bytes, without the source itself where the
  // source is the input: what lives beside the source while resharding. 0 where nothing to do.
  Bytes peak_bytes = 0;
};

// The local shape that a collective reads, given the one that it makes.
Shape input_shape(const Collective& collective, const Shape& output, const Mesh& mesh);

struct ReshardPrice {
  Seconds seconds = 0;
  Bytes peak_bytes = 0;
};

// Links that are busy beside each other: of the innermost tiers, the last of them with those
// beyond.
inline constexpr int kLinks = 3;
// The one that a collective over these axes occupies: that of the outermost tier that it crosses.
int link_of(const AxisList& axes, const Mesh& mesh);

// What reshards at some place in a step cost: each second of their steps so many times.
struct ReshardWeights {
  double local = 1;  // steps that do not communicate
  // The others by their link: sums that all ranks get (AllReduce), and all others.
  std::array<double, kLinks> sums = {1, 1, 1}, others = {1, 1, 1};
  bool in_buckets = false;  // collectives share latencies (saved_in_bucket)
  Seconds issuing = 0;      // more for each step
  // For each second that the host takes for a collective that compute waits for
  // (Profile::waited_host_s), for sums and others.
  double waited_sums = 0, waited_others = 0;
  // More for each that goes over a link, for sums and others.
  std::array<double, kLinks> more_sums = {}, more_others = {};
  bool operator==(const ReshardWeights&) const = default;
};

// For all pairs of two lists of specs, row-major: [from * columns + to], or table[from][to].
struct ReshardTable {
  std::size_t columns = 0;
  std::vector<Seconds> seconds = {};
  std::vector<Bytes> peak_bytes = {};
  std::vector<double> weighted = {};  // where it is asked for

  struct Row {
    const Seconds* seconds;
    const Bytes* peak_bytes;
    ReshardPrice operator[](std::size_t to) const { return {seconds[to], peak_bytes[to]}; }
  };
  Row operator[](std::size_t from) const {
    return {seconds.data() + from * columns, peak_bytes.data() + from * columns};
  }
};

// Shortest paths over the valid specs of one tensor (Dijkstra; states are specs, edges collectives,
// also joint over several axes), on meshes of up to four axes (none of size 1) also over layouts in
// which a device holds several blocks of a dimension, where that is cheaper. Ties: fewer steps, a
// smaller peak, then the order of CollectiveKind and axes, step by step. An axis that MakePartial
// made partial is not reduced again on the way. The result depends on nothing but the arguments.
// Caches per source spec; not thread-safe.
class Resharder {
 public:
  Resharder(Shape shape, DType dtype, Mesh mesh, Cluster cluster);
  // On the sibling's mesh. Tensors of as many bytes whose dimensions divide alike share all paths.
  Resharder(Shape shape, DType dtype, const Resharder& sibling);
  ~Resharder();
  Resharder(Resharder&&) noexcept;
  Resharder& operator=(Resharder&&) noexcept;

  // Precondition: both are valid for the shape. Seconds are infinite (and path() has no steps while
  // from != to) only where no sequence exists: towards a partial max, min or prod.
  Seconds seconds(const Spec& from, const Spec& to);
  Reshard path(const Spec& from, const Spec& to);
  // The same answers in bulk, and with `weights` what these make of the steps of each path.
  ReshardTable table(const std::vector<Spec>& from, const std::vector<Spec>& to,
                     const ReshardWeights* weights = nullptr);
  const Shape& shape() const;
  DType dtype() const;
  // From now on table() counts what it takes, for the siblings too, and where that is over returns
  // at once: the rows that are left are zeros. Null: no limit. It must live as long.
  void limit(Allowance* allowance);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace autopar
