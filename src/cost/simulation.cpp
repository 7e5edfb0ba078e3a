#include "cost/simulation.hpp"

#include <algorithm>
#include <utility>

namespace autopar {

StepSimulation::StepSimulation(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                               const Cluster& cluster, const std::string& updates, Turns turns,
                               std::vector<StepEvent>* events, CriticalPath* path)
    : turns_(turns),
      path_(path),
      graph_(graph),
      cost_(cost),
      events_(events),
      profile_(cluster.profile),
      mesh_(mesh),
      streams_(graph, updates, mesh, cluster.profile),
      pending_(graph.values.size()),
      held_(static_cast<std::size_t>(graph.copies), HeldAhead(cost)),
      queued_(cost.terms.size()),
      found_{0, 0, 0, 0, {}, std::vector<Seconds>(cost.terms.size(), 0)} {
  for (std::size_t t = 0; t < cost.terms.size(); ++t) {
    const CostTerm& term = cost.terms[t];
    const OpId when = when_of(term);
    const bool communicates = communicating(term);
    kinds_.push_back(communicates ? streams_.kind(term.value, when, term.collective.kind)
                                  : Kind::kCompute);
    taken_.push_back(once(term));
    if (communicates && streams_.in_buckets(term.value, when)) {
      const double runs = graph.kernel(graph.op(when)).runs;
      const auto times = static_cast<double>(std::max<std::int64_t>(1, term.times)) * runs;
      const Seconds latency = collective_seconds(term.collective, 1, mesh, cluster);
      taken_[t] -=
          runs * saved_in_bucket(profile_, term.seconds / times, latency, term.sent_bytes / times);
    }
    (graph.op(when).phase == Phase::kUpdate ? update_ : pass_).push_back(t);
    const ValueId source = streams_.source_of(term.value);
    if (kinds_[t] == Kind::kAwaited && graph.value(source).producer.valid()) {
      pending_[source.index()].push_back(t);
    }
    if (kinds_[t] == Kind::kNext) next_.push_back(t);
    add_busy(t, when);
  }
  find_held();
  if (graph.copies > 1) {
    find_sections();
  } else {
    find_fetches();
  }
}

StepTime StepSimulation::run() {
  find_left();
  if (graph_.copies > 1) {
    run_copies();
  } else {
    for (now_ = 0; now_ < graph_.passes; ++now_) {
      last_ = now_ + 1 == graph_.passes;
      for (Fetches& fetches : fetches_) fetches.next = 0;
      held().begin_pass();
      run_all(pass_);
    }
  }
  last_ = true;
  for (std::size_t link = 0; link < queues_.size(); ++link) send_all(link);
  if (summed_) wait(summed_->first, summed_->second, summed_part_);
  run_all(update_);
  for (std::size_t link = 0; link < left_.size(); ++link) send_left(link, kInfinity);
  const Seconds links = *std::max_element(links_.begin(), links_.end());
  found_.seconds = std::max({compute_, links, host_});
  if (path_ != nullptr) {
    const auto last =
        static_cast<std::size_t>(std::max_element(links_.begin(), links_.end()) - links_.begin());
    path_->end(links_[last] > compute_ ? link_part_[last] : compute_part_);
  }
  return std::move(found_);
}

bool StepSimulation::is_issued(const CostTerm& term, OpId when) const {
  if (communicating(term) || term.value.valid()) return true;
  return term.kind == CostTerm::Kind::kCompute && graph_.kernel(graph_.op(when)).launches;
}

void StepSimulation::add_busy(std::size_t t, OpId when) {
  const CostTerm& term = cost_.terms[t];
  const int link = communicating(term) ? link_of(term.collective.axes, mesh_) : 0;
  StreamTimes shares = streams_.shares(kinds_[t], term.value, when, link);
  const auto to = found_.busy.all(), from = shares.all();
  for (std::size_t s = 0; s < to.size(); ++s) *to[s] += taken_[t] * *from[s];
  if (!is_issued(term, when)) return;
  const bool sends = communicating(term);
  found_.busy.host +=
      sends ? streams_.issuing(kinds_[t], when, ranks_of(term.collective)) : streams_.issuing(when);
}

void StepSimulation::run_part(const std::vector<std::size_t>& terms, std::size_t begin,
                              std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const CostTerm& term = cost_.terms[terms[i]];
    const OpId when = when_of(term);
    const bool is_first = i == 0 || !(when_of(cost_.terms[terms[i - 1]]) == when);
    if (&terms == &pass_ && !worked_before_.empty()) worked_ = worked_before_[i];
    if (is_first && &terms == &pass_) begin_op(when);
    if (is_first && path_ != nullptr) note_behind(when);
    run(terms[i], term, when);
    const bool is_last = i + 1 == terms.size() || !(when_of(cost_.terms[terms[i + 1]]) == when);
    if (is_last) finish(when);
  }
}

void StepSimulation::begin_op(OpId op) {
  if (!held().is_limited()) return;
  drop_sent();
  while (sums_held_ > 0 && held().too_much(op, sums_held_) > 0) wait_for_sum();
  held().begin_op(op, compute_, compute_part_, sums_held_);
}

void StepSimulation::run(std::size_t t, const CostTerm& term, OpId when) {
  const Seconds taken = taken_[t];
  wait_for_weights(when);
  if (kinds_[t] == Kind::kNext) return;  // of the next step; that of the last is done
  if (kinds_[t] == Kind::kCompute) {
    const bool launches = is_issued(term, when);
    if (launches) issue(t);
    compute_ = std::max(compute_, host_of(launches)) + taken;
    compute_part_ = part(t, CriticalPath::kCompute, taken, compute_part_);
    found_.compute += taken;
    note(StepEvent::Stream::kCompute, t, compute_);
    return;
  }
  if (kinds_[t] == Kind::kAwaited) {
    wait(t, done_[t], done_part_[t]);
    return;
  }
  if (kinds_[t] == Kind::kSummed) {
    queue(t);
    return;
  }
  issue(t);
  found_.communication += taken;
  if (kinds_[t] == Kind::kFetched) {
    fetch(t);
    slow(t);
    return;
  }
  block(t, term, when);
}

void StepSimulation::block(std::size_t t, const CostTerm& term, OpId when) {
  const Seconds taken = taken_[t];
  const std::size_t l = link_of_term(t);
  const Seconds behind = made();
  const Seconds ready = std::max(behind, host_);
  send_begun(l, ready);
  Seconds& link = links_[l];
  const std::optional<UnderWay>& sum = under_way_[l];
  const bool shares = sum && sum->begin <= ready && done_[sum->term] - ready > taken;
  const Seconds start = shares ? ready : std::max(ready, link);
  const Seconds spans = shares ? 2 * taken : taken;
  const Seconds waited = spans * streams_.waiting(kinds_[t], term.value, when);
  Part& on_link = link_part_[l];
  idle_[l] = {std::max(link, host_), start, on_link};
  if (path_ != nullptr) {
    const Part after = shares ? path_->beside(t, static_cast<int>(l), waited / 2, compute_part_)
                       : link > ready ? on_link
                                      : compute_part_;
    on_link = part(t, static_cast<int>(l), taken, shares ? on_link : after);
    compute_part_ = part(t, CriticalPath::kCompute, shares ? waited / 2 : waited, after);
    longest_blocking_[l] = std::max(longest_blocking_[l], taken);
  }
  link = std::max(ready, link) + taken;
  if (shares) {
    delay_under_way(l, taken);
  } else {
    under_way_[l].reset();
  }
  note(StepEvent::Stream::kLink, t, start + spans, spans);
  if (leaves_for_ != nullptr) {
    leaves_for_->until = start + waited;
    leaves_for_->parts.push_back({t, waited, start + waited - behind});
    return;
  }
  compute_ = start + waited;
  found_.exposed[t] += compute_ - ready;
}

void StepSimulation::issue(std::size_t t) {
  Seconds taken = profile_.host_s;
  const CostTerm& term = cost_.terms[t];
  const int runs = graph_.kernel(graph_.op(when_of(term))).runs;
  if (communicating(term) && streams_.holds_host(kinds_[t], when_of(term))) {
    taken += profile_.waited_host_s(ranks_of(term.collective));
  }
  taken *= runs;
  host_ += taken;
  found_.host += taken;
  if (notes()) note({StepEvent::Stream::kHost, 0, t, now_, host_ - taken, taken, taken});
}

void StepSimulation::note(StepEvent::Stream stream, std::size_t t, Seconds end, Seconds spans) {
  if (!notes()) return;
  const bool links = stream == StepEvent::Stream::kLink;
  const int link = links ? link_of(cost_.terms[t].collective.axes, mesh_) : 0;
  note({stream, link, t, now_, end - spans, spans, taken_[t]});
}

}  // namespace autopar
