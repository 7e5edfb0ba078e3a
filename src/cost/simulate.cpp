#include <algorithm>
#include <map>
#include <vector>

#include "autopar/cost.hpp"

namespace autopar {
namespace {

// Whether nothing but the update, or nobody, needs what an op makes.
std::vector<char> only_for_update(const Graph& graph) {
  std::vector<char> only(graph.ops.size(), 0);
  const auto uses = uses_of(graph);
  std::vector<char> leaves(graph.values.size(), 0);
  for (const ValueId id : graph.outputs) leaves[id.index()] = 1;
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

class Simulation {
 public:
  Simulation(const Graph& graph, const StrategyCost& cost, const Mesh& mesh, const Cluster& cluster,
             const std::string& updates)
      : graph_(graph),
        cost_(cost),
        profile_(cluster.profile),
        made_as_(made_as(graph, updates)),
        pending_(graph.values.size()),
        found_{0, 0, 0, 0, std::vector<Seconds>(cost.terms.size(), 0)} {
    const std::vector<char> only = only_for_update(graph);
    for (std::size_t t = 0; t < cost.terms.size(); ++t) {
      const OpId when = when_of(cost.terms[t]);
      kinds_.push_back(kind_of(cost.terms[t], when, only));
      const bool in_update = graph.op(when).phase == Phase::kUpdate;
      taken_.push_back(once(cost.terms[t]));
      const bool in_bucket = in_update || kinds_[t] == Kind::kAwaited;
      if (in_bucket) taken_[t] -= saved(cost.terms[t], mesh, cluster);
      (in_update ? update_ : pass_).push_back(t);
      const ValueId source = source_of(cost.terms[t].value);
      if (kinds_[t] == Kind::kAwaited && graph.value(source).producer.valid()) {
        pending_[source.index()].push_back(t);
      }
    }
  }

  StepTime run() {
    for (std::int64_t pass = 0; pass < graph_.passes; ++pass) {
      last_ = pass + 1 == graph_.passes;
      run_all(pass_);
    }
    last_ = true;
    run_all(update_);
    found_.seconds = std::max({compute_, link_, host_});
    return std::move(found_);
  }

 private:
  // Compute waits, or the update does, or the reader of a stored value that is fetched ahead.
  enum class Kind { kCompute, kBlocking, kAwaited, kFetched };

  OpId when_of(const CostTerm& term) const {
    return term.op.valid() ? term.op : graph_.value(term.value).producer;
  }

  ValueId source_of(ValueId id) const {
    if (!id.valid()) return id;
    const ValueId made = made_as_[id.index()];
    return made.valid() ? made : id;
  }

  Kind kind_of(const CostTerm& term, OpId when, const std::vector<char>& only) const {
    if (term.kind == CostTerm::Kind::kCompute || !communicates(term.collective.kind)) {
      return Kind::kCompute;
    }
    if (!term.value.valid()) return Kind::kBlocking;
    const Value& value = graph_.value(term.value);
    const Phase phase = graph_.op(when).phase;
    const bool gradient = value.kind == ValueKind::kActivation || value.accumulates;
    if (only[when.index()] && gradient) {
      // What the update makes itself is ready when it is made.
      const ValueId source = source_of(term.value);
      const OpId maker = graph_.value(source).producer;
      const bool of_pass = maker.valid() && graph_.op(maker).phase != Phase::kUpdate;
      return of_pass ? Kind::kAwaited : Kind::kBlocking;
    }
    if (value.kind == ValueKind::kParameter && phase != Phase::kUpdate) return Kind::kFetched;
    return Kind::kBlocking;
  }

  Seconds once(const CostTerm& term) const {
    return term.seconds / static_cast<double>(std::max<std::int64_t>(1, term.times));
  }

  // By going with others in one message.
  Seconds saved(const CostTerm& term, const Mesh& mesh, const Cluster& cluster) const {
    if (term.kind == CostTerm::Kind::kCompute || !communicates(term.collective.kind)) return 0;
    if (profile_.bucket_bytes <= 0) return 0;
    const auto times = static_cast<double>(std::max<std::int64_t>(1, term.times));
    const double share = std::min(1.0, term.sent_bytes / times / profile_.bucket_bytes);
    const Seconds latency = collective_seconds(term.collective, 1, mesh, cluster);
    return std::min(once(term), latency) * (1 - share);
  }

  void run_all(const std::vector<std::size_t>& terms) {
    OpId op;
    for (const std::size_t t : terms) {
      const CostTerm& term = cost_.terms[t];
      const OpId when = when_of(term);
      if (op.valid() && !(op == when)) finish(op);
      op = when;
      run(t, term, when);
    }
    if (op.valid()) finish(op);
  }

  void run(std::size_t t, const CostTerm& term, OpId when) {
    const Seconds taken = taken_[t];
    if (kinds_[t] == Kind::kCompute) {
      const bool launches = !term.value.valid() && graph_.kernel(graph_.op(when)).launches;
      if (launches || term.value.valid()) issue();
      compute_ = std::max(compute_, host_of(launches)) + taken;
      found_.compute += taken;
      return;
    }
    if (kinds_[t] == Kind::kAwaited) {
      // It has been running since its value was there; of the update, compute waits for it.
      if (graph_.op(when).phase == Phase::kUpdate) wait(t, done_[t]);
      return;
    }
    issue();
    found_.communication += taken;
    if (kinds_[t] == Kind::kFetched) {
      link_ = std::max(link_, host_) + taken;
      wait(t, link_);
      return;
    }
    const Seconds start = std::max({compute_, link_, host_});
    compute_ = link_ = start + taken;
    found_.exposed[t] += taken;
  }

  void wait(std::size_t t, Seconds until) {
    if (until <= compute_) return;
    found_.exposed[t] += until - compute_;
    compute_ = until;
  }

  // What waits for the values of an op begins.
  void finish(OpId id) {
    for (const ValueId output : graph_.op(id).outputs) {
      if (!output.valid()) continue;
      for (const std::size_t t : pending_[output.index()]) {
        const bool in_update = graph_.op(when_of(cost_.terms[t])).phase == Phase::kUpdate;
        if (in_update && !last_) continue;
        const Seconds taken = taken_[t];
        issue();
        link_ = std::max({link_, compute_, host_}) + taken;
        found_.communication += taken;
        done_[t] = link_;
      }
    }
  }

  void issue() {
    host_ += profile_.host_s;
    found_.host += profile_.host_s;
  }
  Seconds host_of(bool launches) const { return launches ? host_ : 0; }

  const Graph& graph_;
  const StrategyCost& cost_;
  const Profile& profile_;
  std::vector<ValueId> made_as_;
  std::vector<std::vector<std::size_t>> pending_;  // per value what is sent of it for the update
  std::vector<Kind> kinds_;
  std::vector<Seconds> taken_;  // per term, once
  std::vector<std::size_t> pass_, update_;
  std::map<std::size_t, Seconds> done_;
  bool last_ = false;
  Seconds compute_ = 0, link_ = 0, host_ = 0;  // until when they are busy
  StepTime found_;
};

}  // namespace

StepTime simulate(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                  const Cluster& cluster, const std::string& updates) {
  return Simulation(graph, cost, mesh, cluster, updates).run();
}

}  // namespace autopar
