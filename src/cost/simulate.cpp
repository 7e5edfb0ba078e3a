#include <algorithm>
#include <map>
#include <vector>

#include "autopar/cost.hpp"

namespace autopar {
namespace {

class Simulation {
 public:
  Simulation(const Graph& graph, const StrategyCost& cost, const Mesh& mesh, const Cluster& cluster,
             const std::string& updates, std::vector<StepEvent>* events)
      : graph_(graph),
        cost_(cost),
        events_(events),
        profile_(cluster.profile),
        streams_(graph, updates, cluster.profile),
        pending_(graph.values.size()),
        found_{0, 0, 0, 0, {}, std::vector<Seconds>(cost.terms.size(), 0)} {
    for (std::size_t t = 0; t < cost.terms.size(); ++t) {
      const CostTerm& term = cost.terms[t];
      const OpId when = when_of(term);
      const bool communicates = communicating(term);
      kinds_.push_back(communicates ? streams_.kind(term.value, when) : Kind::kCompute);
      taken_.push_back(once(term));
      if (communicates && streams_.in_buckets(kinds_[t], when)) {
        const auto times = static_cast<double>(std::max<std::int64_t>(1, term.times));
        const Seconds latency = collective_seconds(term.collective, 1, mesh, cluster);
        taken_[t] -= saved_in_bucket(profile_, once(term), latency, term.sent_bytes / times);
      }
      (graph.op(when).phase == Phase::kUpdate ? update_ : pass_).push_back(t);
      const ValueId source = streams_.source_of(term.value);
      if (kinds_[t] == Kind::kAwaited && graph.value(source).producer.valid()) {
        pending_[source.index()].push_back(t);
      }
      add_busy(t, when);
    }
  }

  StepTime run() {
    for (now_ = 0; now_ < graph_.passes; ++now_) {
      last_ = now_ + 1 == graph_.passes;
      run_all(pass_);
    }
    last_ = true;
    run_all(update_);
    found_.seconds = std::max({compute_, link_, host_});
    return std::move(found_);
  }

 private:
  using Kind = Streams::Kind;

  static bool communicating(const CostTerm& term) {
    return term.kind == CostTerm::Kind::kCollective && communicates(term.collective.kind);
  }

  OpId when_of(const CostTerm& term) const {
    return term.op.valid() ? term.op : graph_.value(term.value).producer;
  }

  // What an op does beside its collectives is issued with its kernel.
  bool is_issued(const CostTerm& term, OpId when) const {
    if (communicating(term) || term.value.valid()) return true;
    return term.kind == CostTerm::Kind::kCompute && graph_.kernel(graph_.op(when)).launches;
  }

  void add_busy(std::size_t t, OpId when) {
    const CostTerm& term = cost_.terms[t];
    const StreamTimes shares = streams_.shares(kinds_[t], term.value, when);
    found_.busy.compute += taken_[t] * shares.compute;
    found_.busy.link += taken_[t] * shares.link;
    found_.busy.tail += taken_[t] * shares.tail;
    if (is_issued(term, when)) found_.busy.host += streams_.issuing(when);
  }

  Seconds once(const CostTerm& term) const {
    return term.seconds / static_cast<double>(std::max<std::int64_t>(1, term.times));
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
      const bool launches = is_issued(term, when);
      if (launches) issue(t);
      compute_ = std::max(compute_, host_of(launches)) + taken;
      found_.compute += taken;
      note(StepEvent::Stream::kCompute, t, compute_);
      return;
    }
    if (kinds_[t] == Kind::kAwaited) {
      // It has been running since its value was there; of the update, compute waits for it.
      if (graph_.op(when).phase == Phase::kUpdate) wait(t, done_[t]);
      return;
    }
    issue(t);
    found_.communication += taken;
    if (kinds_[t] == Kind::kFetched) {
      link_ = std::max(link_, host_) + taken;
      note(StepEvent::Stream::kLink, t, link_);
      wait(t, link_);
      return;
    }
    const Seconds start = std::max({compute_, link_, host_});
    compute_ = link_ = start + taken;
    found_.exposed[t] += taken;
    note(StepEvent::Stream::kLink, t, link_);
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
        issue(t);
        link_ = std::max({link_, compute_, host_}) + taken;
        found_.communication += taken;
        note(StepEvent::Stream::kLink, t, link_);
        done_[t] = link_;
      }
    }
  }

  void issue(std::size_t t) {
    host_ += profile_.host_s;
    found_.host += profile_.host_s;
    if (events_ == nullptr) return;
    events_->push_back(
        {StepEvent::Stream::kHost, t, now_, host_ - profile_.host_s, profile_.host_s});
  }
  void note(StepEvent::Stream stream, std::size_t t, Seconds end) {
    if (events_ != nullptr) events_->push_back({stream, t, now_, end - taken_[t], taken_[t]});
  }
  Seconds host_of(bool launches) const { return launches ? host_ : 0; }

  const Graph& graph_;
  const StrategyCost& cost_;
  std::vector<StepEvent>* const events_;  // null: nobody asks
  const Profile& profile_;
  const Streams streams_;
  std::vector<std::vector<std::size_t>> pending_;  // per value what is sent of it for the update
  std::vector<Kind> kinds_;
  std::vector<Seconds> taken_;  // per term, once
  std::vector<std::size_t> pass_, update_;
  std::map<std::size_t, Seconds> done_;
  std::int64_t now_ = 0;  // which pass
  bool last_ = false;
  Seconds compute_ = 0, link_ = 0, host_ = 0;  // until when they are busy
  StepTime found_;
};

}  // namespace

StepTime simulate(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                  const Cluster& cluster, const std::string& updates) {
  return Simulation(graph, cost, mesh, cluster, updates, nullptr).run();
}

std::vector<StepEvent> step_events(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                                   const Cluster& cluster, const std::string& updates) {
  std::vector<StepEvent> events;
  if (!cluster.profile.ideal()) {
    Simulation(graph, cost, mesh, cluster, updates, &events).run();
    return events;
  }
  Seconds now = 0;
  for (std::int64_t pass = 0; pass <= graph.passes; ++pass) {
    for (std::size_t t = 0; t < cost.terms.size(); ++t) {
      const CostTerm& term = cost.terms[t];
      const OpId when = term.op.valid() ? term.op : graph.value(term.value).producer;
      if ((graph.op(when).phase == Phase::kUpdate) != (pass == graph.passes)) continue;
      const bool sends =
          term.kind == CostTerm::Kind::kCollective && communicates(term.collective.kind);
      const Seconds once =
          term.seconds / static_cast<double>(std::max<std::int64_t>(1, term.times));
      const auto stream = sends ? StepEvent::Stream::kLink : StepEvent::Stream::kCompute;
      events.push_back({stream, t, pass, now, once});
      now += once;
    }
  }
  return events;
}

}  // namespace autopar
