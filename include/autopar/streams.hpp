// How long the streams of a step are busy, as weighted sums of prices: what a search with a profile
// minimises, and what bounds its time.
//
//   Streams streams(graph, "new.*", mesh, profile);
//   const Streams::Kind kind = streams.kind(value, reader, CollectiveKind::kAllReduce);
//   streams.shares(kind, value, reader, link).weighted(weights)   per second of the collective
#pragma once

#include <array>
#include <string>
#include <vector>

#include "autopar/comm.hpp"
#include "autopar/ir.hpp"
#include "autopar/profile.hpp"

namespace autopar {

// Seconds for which each is busy, or its share. No step is shorter than any of them:
//   compute: kernels, the collectives that they wait for (not of interleaved passes), and the time
//     that others beside them cost (Profile::slowdown);
//   links: all collectives over each of them (link_of);
//   tail: what compute does before the backward pass of the last micro-batch, and then the
//     collectives over the outermost link that cannot begin before;
//   host: issuing kernels and collectives.
struct StreamTimes {
  // No stream has less than this of the weights of a search, since what costs nothing would be
  // chosen at random. What the others have together the bound of a step that compute alone decides
  // lacks: a step of 8B on 64 H100 (h100-megatron, 256 samples, 4 passes) has a gap of 1.8 % with
  // 0.004, of 0.46 % with 0.0005, for the same plan.
  static constexpr double kLeastWeight = 0.0005;

  Seconds compute = 0;
  std::array<Seconds, kLinks> links = {};
  Seconds tail = 0, host = 0;

  // Weights that sum to 1 make of busy times a bound on the time of the step.
  Seconds weighted(const StreamTimes& weights) const;
  std::array<Seconds*, kLinks + 3> all();
  Seconds most() const;
  // Weights with which what is as busy as these bounds its own time best: most for the busiest
  // stream, a little for each other, since what costs nothing would be chosen at random.
  StreamTimes sharp_weights() const;
  friend auto operator<=>(const StreamTimes&, const StreamTimes&) = default;
};

// What an op pays for streams in a plan like one that is known.
struct StreamPrices {
  StreamTimes weights;  // per second on each
  // Seconds that compute waits in a pass for what goes over a link before, if it waits for a
  // collective over that link there.
  std::array<Seconds, kLinks> behind = {};
  friend auto operator<=>(const StreamPrices&, const StreamPrices&) = default;
};

// Which streams the parts of a step's cost are busy on.
class Streams {
 public:
  Streams(const Graph& graph, const std::string& updates, const Mesh& mesh, const Profile& profile);

  // A kernel, or a collective: compute waits for it; or only the update, after the last pass
  // (kAwaited) or, of a gradient that a pass adds to the others, in each pass (kSummed); or it
  // fetches a stored value ahead, or an updated one for the next step.
  enum class Kind : std::uint8_t { kCompute, kBlocking, kAwaited, kSummed, kFetched, kNext };
  // Of a collective of a reshard of a value that happens when an op runs; of none: kBlocking.
  Kind kind(ValueId value, OpId when, CollectiveKind collective) const;
  // Whether collectives of a reshard share latencies with others there.
  bool in_buckets(ValueId value, OpId when) const;
  // What waits for the update, or is made for it: the value that is sent.
  ValueId source_of(ValueId value) const;
  // kNext: the input whose next value it is.
  ValueId next_of(ValueId value) const { return updated_[value.index()]; }

  // Seconds on each stream, over the whole step, of one second in each pass that the op runs in.
  StreamTimes shares(Kind kind, ValueId value, OpId when, int link) const;
  // Of such a collective: the part that compute waits for.
  double waiting(Kind kind, ValueId value, OpId when) const;
  // The same of one launch on the host, in seconds, and of one collective of so many ranks.
  Seconds issuing(OpId when) const;
  Seconds issuing(Kind kind, OpId when, std::int64_t ranks) const;
  // How often a step runs an op.
  double runs(OpId op) const;
  // Whether the host takes Profile::waited_host_s for a collective there, which no sum of gradients
  // makes it do.
  bool holds_host(Kind kind, OpId when) const;

 private:
  // What a reshard is for, whatever the profile defers.
  Kind purpose(ValueId value, OpId when) const;
  bool is_late(OpId op) const;

  const Graph& graph_;
  const Profile& profile_;
  int outermost_ = 0;             // of the links
  std::vector<char> is_read_;     // per value: by ops
  std::vector<char> sums_;        // per op: it brings a gradient to an accumulator, or adds it
  std::vector<ValueId> updated_;  // per value the input whose next value it is
  std::vector<ValueId> made_as_;  // per value the one that holds it before it is asked for
  bool forward_first_;
};

}  // namespace autopar
