// How long the streams of a step are busy, as weighted sums of prices: what a search with a profile
// minimises, and what bounds its time.
//
//   Streams streams(graph, "new.*", profile);
//   streams.weight(streams.kind(value, reader), reader, weights)   per second of one collective
#pragma once

#include <string>
#include <vector>

#include "autopar/ir.hpp"
#include "autopar/profile.hpp"

namespace autopar {

// Seconds for which each is busy, or its share. No step is shorter than any of them:
//   compute: kernels and the collectives that they wait for;
//   link: all collectives;
//   tail: what compute does before the backward pass of the last micro-batch, and then the
//     collectives that cannot begin before;
//   host: issuing kernels and collectives.
struct StreamTimes {
  Seconds compute = 0, link = 0, tail = 0, host = 0;

  // Weights that sum to 1 make of busy times a bound on the time of the step.
  Seconds weighted(const StreamTimes& weights) const;
  Seconds most() const;
  friend bool operator==(const StreamTimes&, const StreamTimes&) = default;
};

// Which streams the parts of a step's cost are busy on.
class Streams {
 public:
  Streams(const Graph& graph, const std::string& updates, const Profile& profile);

  // A kernel; or a collective for which compute waits, or only the update, or nobody, since it
  // fetches a stored value ahead.
  enum class Kind : std::uint8_t { kCompute, kBlocking, kAwaited, kFetched };
  // Of the collectives of a reshard of a value that happens when an op runs.
  Kind kind(ValueId value, OpId when) const;
  // Whether collectives of that kind share latencies with others there.
  bool in_buckets(Kind kind, OpId when) const;
  // What waits for the update, or is made for it: the value that is sent.
  ValueId source_of(ValueId value) const;

  // Seconds on each stream, over the whole step, of one second in each pass that the op runs in.
  StreamTimes shares(Kind kind, ValueId value, OpId when) const;
  // The same of one launch or collective on the host, in seconds.
  Seconds issuing(OpId when) const;

 private:
  bool is_late(OpId op) const;

  const Graph& graph_;
  const Profile& profile_;
  std::vector<char> only_for_update_;  // per op
  std::vector<ValueId> made_as_;       // per value the one that holds it before it is asked for
  bool forward_first_;
};

}  // namespace autopar
