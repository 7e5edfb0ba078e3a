#include "autopar/streams.hpp"

#include <algorithm>
#include <cmath>

#include "autopar/ops.hpp"
#include "autopar/strategy.hpp"

namespace autopar {
namespace {

// e^-1 of what the busiest stream has for one that is busy for so much less of its time, and no
// less than StreamTimes::kLeastWeight.
constexpr double kSharpness = 0.03;

// Of each value the one that holds it before it is asked for: what an input of the update is the
// next value of, and what the update makes a function of. A cast or a scaling of a gradient can
// happen as soon as that is there.
std::vector<ValueId> made_as(const Graph& graph, const std::vector<ValueId>& updated) {
  std::vector<ValueId> made(graph.values.size());
  for (std::size_t v = 0; v < updated.size(); ++v) {
    if (updated[v].valid() && graph.values[v].producer.valid() &&
        graph.op(graph.values[v].producer).phase != Phase::kUpdate) {
      made[updated[v].index()] = ValueId(static_cast<std::int64_t>(v));
    }
  }
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kUpdate || op.outputs.size() != 1 || !op.has_output(0)) continue;
    if (!is_on_elements(op) && !is_view(op)) continue;
    ValueId of;
    int made_in_step = 0;
    for (const ValueId id : op.inputs) {
      if (!id.valid()) continue;
      const Value& value = graph.value(id);
      if (value.producer.valid() || made[id.index()].valid()) {
        of = made[id.index()].valid() ? made[id.index()] : id;
        ++made_in_step;
      } else if (value.kind != ValueKind::kConstant && element_count(value.shape) != 1) {
        ++made_in_step;
      }
    }
    const bool follows = made_in_step == 1 && of.valid();
    if (follows && graph.op(graph.value(of).producer).phase != Phase::kUpdate) {
      made[op.outputs[0].index()] = of;
    }
  }
  return made;
}

// Per op: whether it adds the gradient of a pass to those of the passes before, or hands it to the
// update of a step of one pass, or only casts, scales or views it on the way there. Nothing of the
// pass waits for it. Interleaved passes send it in their turns: while one waits, another computes.
std::vector<char> sums_of_passes(const Graph& graph) {
  std::vector<char> is_summed(graph.values.size(), 1), sums(graph.ops.size(), 0);
  std::vector<char> has_reader(graph.values.size(), 0);
  if (graph.copies > 1) return sums;
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    const bool is_light = op.phase == Phase::kBackward && op.outputs.size() == 1 &&
                          op.has_output(0) && (is_on_elements(op) || is_view(op));
    const ValueId made = is_light ? op.outputs[0] : ValueId();
    sums[o] = is_light && (graph.value(made).accumulates ||
                           (has_reader[made.index()] && is_summed[made.index()]));
    for (const ValueId id : op.inputs) {
      if (!id.valid()) continue;
      has_reader[id.index()] = 1;
      is_summed[id.index()] &= sums[o] != 0 || op.phase == Phase::kUpdate;
    }
  }
  return sums;
}

// Whether all of the forward pass is done before anything of the backward pass begins.
bool forward_first(const Graph& graph) {
  const auto not_forward = [](const Op& op) { return op.phase != Phase::kForward; };
  const auto first = graph.ops.begin() + static_cast<std::ptrdiff_t>(end_of_forward(graph));
  return std::all_of(first, graph.ops.end(), not_forward);
}

}  // namespace

std::array<Seconds*, kLinks + 3> StreamTimes::all() {
  return {&compute, links.data(), links.data() + 1, links.data() + 2, &tail, &host};
}

Seconds StreamTimes::weighted(const StreamTimes& weights) const {
  Seconds sum = compute * weights.compute + tail * weights.tail + host * weights.host;
  for (std::size_t l = 0; l < links.size(); ++l) sum += links[l] * weights.links[l];
  return sum;
}

Seconds StreamTimes::most() const {
  return std::max({compute, tail, host, *std::max_element(links.begin(), links.end())});
}

StreamTimes StreamTimes::sharp_weights() const {
  const Seconds busiest = most();
  StreamTimes weights = *this;
  double sum = 0;
  for (Seconds* w : weights.all()) {
    const double part = busiest > 0 ? *w / busiest : 1;
    *w = std::max(kLeastWeight, std::exp((part - 1) / kSharpness));
    sum += *w;
  }
  for (Seconds* w : weights.all()) *w /= sum;
  return weights;
}

Streams::Streams(const Graph& graph, const std::string& updates, const Mesh& mesh,
                 const Profile& profile)
    : graph_(graph),
      profile_(profile),
      is_read_(graph.values.size(), 0),
      sums_(sums_of_passes(graph)),
      updated_(updated_inputs(graph, updates)),
      made_as_(made_as(graph, updated_)),
      forward_first_(forward_first(graph)) {
  for (const Op& op : graph.ops) {
    for (const ValueId id : op.inputs) {
      if (id.valid()) is_read_[id.index()] = 1;
    }
  }
  for (const Axis& axis : mesh.axes) outermost_ = std::max(outermost_, axis.tier);
  outermost_ = std::min(outermost_, kLinks - 1);
}

ValueId Streams::source_of(ValueId id) const {
  if (!id.valid()) return id;
  const ValueId made = made_as_[id.index()];
  return made.valid() ? made : id;
}

Streams::Kind Streams::purpose(ValueId id, OpId when) const {
  if (!id.valid()) return Kind::kBlocking;
  const Value& value = graph_.value(id);
  const bool in_pass = graph_.op(when).phase != Phase::kUpdate;
  const bool is_made = value.kind == ValueKind::kActivation || value.accumulates;
  if (!in_pass && is_made) {
    const OpId maker = graph_.value(source_of(id)).producer;
    const bool of_pass = maker.valid() && graph_.op(maker).phase != Phase::kUpdate;
    if (of_pass) return Kind::kAwaited;
    // What the update makes itself is ready when it is made.
    const ValueId next = updated_[id.index()];
    const bool of_weight =
        next.valid() && graph_.value(next).kind == ValueKind::kParameter && !is_read_[id.index()];
    return of_weight ? Kind::kNext : Kind::kBlocking;
  }
  if (in_pass && sums_[when.index()] && value.kind == ValueKind::kActivation) return Kind::kSummed;
  return value.kind == ValueKind::kParameter && in_pass ? Kind::kFetched : Kind::kBlocking;
}

Streams::Kind Streams::kind(ValueId value, OpId when, CollectiveKind collective) const {
  const Kind kind = purpose(value, when);
  const Deferred& deferred = profile_.deferred;
  const bool all_reduce = collective == CollectiveKind::kAllReduce;
  const bool is_deferred = kind == Kind::kAwaited || kind == Kind::kSummed
                               ? (all_reduce ? deferred.all_reduce : deferred.reduce_scatter)
                           : kind == Kind::kFetched ? deferred.gather
                           : kind == Kind::kNext    ? deferred.update
                                                    : true;
  return is_deferred ? kind : Kind::kBlocking;
}

bool Streams::in_buckets(ValueId value, OpId when) const {
  const Kind kind = purpose(value, when);
  return kind != Kind::kBlocking || graph_.op(when).phase == Phase::kUpdate;
}

// In the last pass: not before its backward pass.
bool Streams::is_late(OpId op) const {
  return !forward_first_ || graph_.op(op).phase != Phase::kForward;
}

StreamTimes Streams::shares(Kind kind, ValueId value, OpId when, int link) const {
  const auto times = static_cast<double>(graph_.times(graph_.op(when)));
  const bool in_pass = graph_.op(when).phase != Phase::kUpdate;
  const auto copies = static_cast<double>(in_pass ? graph_.copies : 1);
  // Of interleaved passes the first may be in its backward pass while another is in its forward
  // pass, and while one waits for a collective, another computes.
  const double late = is_late(when) ? copies : 0;
  const double early = times - (is_late(when) ? copies : copies - 1);
  const double waits = copies > 1 ? 0 : waiting(kind, value, when);
  const bool is_outermost = link == outermost_;
  StreamTimes found;
  if (kind != Kind::kCompute) found.links[static_cast<std::size_t>(link)] = times;
  // What goes on beside compute slows it down.
  found.compute = times * profile_.slowdown;
  switch (kind) {
    case Kind::kCompute:
      found.compute = times;
      found.tail = early;
      break;
    case Kind::kBlocking:
      found.compute = times * waits;
      found.tail = (is_outermost ? late : 0) + early * waits;
      break;
    case Kind::kAwaited: {
      const OpId maker = graph_.value(source_of(value)).producer;
      found.tail = is_outermost && is_late(maker) ? 1 : 0;
      break;
    }
    case Kind::kSummed:
      found.tail = is_outermost ? late : 0;
      break;
    case Kind::kFetched:
    case Kind::kNext:
      break;
  }
  return found;
}

double Streams::waiting(Kind kind, ValueId value, OpId when) const {
  if (kind != Kind::kBlocking) return 0;
  const bool of_activation = value.valid() && graph_.op(when).phase != Phase::kUpdate &&
                             graph_.value(value).kind == ValueKind::kActivation;
  return of_activation ? 1 - profile_.pipelined : 1;
}

Seconds Streams::issuing(OpId when) const { return profile_.host_s * runs(when); }

Seconds Streams::issuing(Kind kind, OpId when, std::int64_t ranks) const {
  const Seconds waited = holds_host(kind, when) ? profile_.waited_host_s(ranks) : 0;
  return (profile_.host_s + waited) * runs(when);
}

double Streams::runs(OpId op) const {
  return static_cast<double>(graph_.times(graph_.op(op)) * graph_.kernel(graph_.op(op)).runs);
}

bool Streams::holds_host(Kind kind, OpId when) const {
  return kind == Kind::kBlocking && graph_.op(when).phase != Phase::kUpdate &&
         sums_[when.index()] == 0;
}

}  // namespace autopar
