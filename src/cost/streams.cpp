#include "autopar/streams.hpp"

#include <algorithm>

#include "autopar/strategy.hpp"

namespace autopar {
namespace {

// Whether nothing but the update, or nobody, needs what an op makes.
std::vector<char> only_for_update(const Graph& graph) {
  std::vector<char> only(graph.ops.size(), 0);
  const auto uses = uses_of(graph);
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    only[o] = op.phase != Phase::kForward;
    if (op.phase == Phase::kUpdate) continue;
    for (const ValueId output : op.outputs) {
      if (!output.valid()) continue;
      for (const Use& use : uses[output.index()]) {
        if (!only[use.op.index()]) only[o] = 0;
      }
    }
  }
  return only;
}

// Of each value the one that holds it before it is asked for: what an input of the update is the
// next value of.
std::vector<ValueId> made_as(const Graph& graph, const std::string& updates) {
  std::vector<ValueId> made(graph.values.size());
  const std::vector<ValueId> updated = updated_inputs(graph, updates);
  for (std::size_t v = 0; v < updated.size(); ++v) {
    if (updated[v].valid() && graph.values[v].producer.valid() &&
        graph.op(graph.values[v].producer).phase != Phase::kUpdate) {
      made[updated[v].index()] = ValueId(static_cast<std::int64_t>(v));
    }
  }
  return made;
}

// Whether all of the forward pass is done before anything of the backward pass begins.
bool forward_first(const Graph& graph) {
  const auto not_forward = [](const Op& op) { return op.phase != Phase::kForward; };
  const auto first = std::find_if(graph.ops.begin(), graph.ops.end(), not_forward);
  return std::all_of(first, graph.ops.end(), not_forward);
}

}  // namespace

Seconds StreamTimes::weighted(const StreamTimes& weights) const {
  return compute * weights.compute + link * weights.link + tail * weights.tail +
         host * weights.host;
}

Seconds StreamTimes::most() const { return std::max({compute, link, tail, host}); }

Streams::Streams(const Graph& graph, const std::string& updates, const Profile& profile)
    : graph_(graph),
      profile_(profile),
      only_for_update_(only_for_update(graph)),
      made_as_(made_as(graph, updates)),
      forward_first_(forward_first(graph)) {}

ValueId Streams::source_of(ValueId id) const {
  if (!id.valid()) return id;
  const ValueId made = made_as_[id.index()];
  return made.valid() ? made : id;
}

Streams::Kind Streams::kind(ValueId id, OpId when) const {
  if (!id.valid()) return Kind::kBlocking;
  const Value& value = graph_.value(id);
  const bool gradient = value.kind == ValueKind::kActivation || value.accumulates;
  if (only_for_update_[when.index()] && gradient) {
    // What the update makes itself is ready when it is made.
    const OpId maker = graph_.value(source_of(id)).producer;
    const bool of_pass = maker.valid() && graph_.op(maker).phase != Phase::kUpdate;
    return of_pass ? Kind::kAwaited : Kind::kBlocking;
  }
  const bool in_pass = graph_.op(when).phase != Phase::kUpdate;
  return value.kind == ValueKind::kParameter && in_pass ? Kind::kFetched : Kind::kBlocking;
}

bool Streams::in_buckets(Kind kind, OpId when) const {
  return kind == Kind::kAwaited || kind == Kind::kFetched ||
         (kind == Kind::kBlocking && graph_.op(when).phase == Phase::kUpdate);
}

// In the last pass: not before its backward pass.
bool Streams::is_late(OpId op) const {
  return !forward_first_ || graph_.op(op).phase != Phase::kForward;
}

StreamTimes Streams::shares(Kind kind, ValueId value, OpId when) const {
  const auto times = static_cast<double>(graph_.times(graph_.op(when)));
  const double early = is_late(when) ? times - 1 : times;
  switch (kind) {
    case Kind::kCompute:
      return {times, 0, early, 0};
    case Kind::kBlocking:
      return {times, times, times, 0};
    case Kind::kAwaited: {
      const OpId maker = graph_.value(source_of(value)).producer;
      return {0, times, is_late(maker) ? 1.0 : 0.0, 0};
    }
    case Kind::kFetched:
      return {0, times, 0, 0};
  }
  return {};
}

Seconds Streams::issuing(OpId when) const {
  return profile_.host_s * static_cast<double>(graph_.times(graph_.op(when)));
}

}  // namespace autopar
