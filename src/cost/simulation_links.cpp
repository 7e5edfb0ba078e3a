// What goes over the links beside compute, and in which order.
#include <algorithm>
#include <map>
#include <vector>

#include "cost/simulation.hpp"

namespace autopar {

void StepSimulation::queue(std::size_t t) {
  issue(t);
  found_.communication += taken_[t];
  const std::size_t link = link_of_term(t);
  if (queued_[t] == graph_.copies) {
    while (queued_[t] == graph_.copies) send_first(link);
    wait(t, done_[t], done_part_[t]);
  }
  ++queued_[t];
  sums_held_ += kinds_[t] == Kind::kSummed ? ahead_bytes_[t] : 0;
  queues_[link].push_back({t, std::max(made(), host_), compute_part_});
  slow(t);
}

void StepSimulation::fetch(std::size_t t) {
  const std::size_t link = link_of_term(t);
  Fetches& fetches = fetches_[link];
  if (!fetches.early.empty()) {
    const Arrival its = fetches.early.front();
    fetches.early.pop_front();
    wait(t, its.at, its.part);
    return;
  }
  Idle& idle = idle_[link];
  HeldAhead::Begin begin = first_room(t, idle.begin, idle.before);
  const bool fits = begin.at + taken_[t] <= idle.end;
  if (!fits) {
    send_before_weights(link, first_room(t, links_[link], link_part_[link]).at);
    links_[link] = std::max(links_[link], host_);
    begin = first_room(t, links_[link], link_part_[link]);
  }
  ++fetches.next;
  held().hold(ahead_bytes_[t], begin.at);
  Seconds& end = fits ? idle.begin : links_[link];
  Part& last = fits ? idle.before : link_part_[link];
  end = begin.at + taken_[t];
  if (!fits) under_way_[link].reset();
  last = part(t, static_cast<int>(link), taken_[t], begin.part);
  note(StepEvent::Stream::kLink, t, end);
  wait(t, end, last);
}

void StepSimulation::send_first(std::size_t link) {
  const auto [t, ready, made_by] = queues_[link].front();
  send_left(link, ready);
  queues_[link].pop_front();
  --queued_[t];
  ++sent_[link];
  link_part_[link] =
      part(t, static_cast<int>(link), taken_[t], ready > links_[link] ? made_by : link_part_[link]);
  const Seconds begin = std::max(links_[link], ready);
  links_[link] = begin + taken_[t];
  under_way_[link] = {t, events_ == nullptr ? 0 : events_->size(), begin};
  note(StepEvent::Stream::kLink, t, links_[link]);
  note_done(t, link, links_[link]);
  if (kinds_[t] == Kind::kSummed) sums_sent_[link].push_back({t, links_[link], link_part_[link]});
}

void StepSimulation::drop_sent() {
  for (std::deque<Sent>& sent : sums_sent_) {
    while (!sent.empty() && sent.front().end <= compute_) {
      sums_held_ -= ahead_bytes_[sent.front().term];
      sent.pop_front();
    }
  }
}

void StepSimulation::wait_for_sum() {
  std::size_t first = 0;
  const auto when = [&](std::size_t link) {
    if (!sums_sent_[link].empty()) return sums_sent_[link].front().end;
    if (queues_[link].empty()) return kInfinity;
    const Queued& next = queues_[link].front();
    return std::max(links_[link], next.ready) + taken_[next.term];
  };
  for (std::size_t link = 1; link < links_.size(); ++link) {
    if (when(link) < when(first)) first = link;
  }
  if (sums_sent_[first].empty()) send_first(first);
  if (!sums_sent_[first].empty()) {
    const Sent sum = sums_sent_[first].front();
    wait(sum.term, sum.end, sum.part);
  }
  drop_sent();
}

void StepSimulation::note_done(std::size_t t, std::size_t link, Seconds end) {
  done_[t] = end;
  done_part_[t] = link_part_[link];
  if (kinds_[t] != Kind::kSummed) return;
  if (summed_ && end <= summed_->second) return;
  summed_ = {t, end};
  summed_part_ = link_part_[link];
}

void StepSimulation::delay_under_way(std::size_t link, Seconds by) {
  const UnderWay sum = *under_way_[link];
  if (events_ != nullptr) (*events_)[sum.event].seconds += by;
  note_done(sum.term, link, done_[sum.term] + by);
  std::deque<Sent>& sent = sums_sent_[link];
  if (!sent.empty() && sent.back().term == sum.term) sent.back().end += by;
}

void StepSimulation::send_all(std::size_t link) {
  while (!queues_[link].empty()) send_first(link);
}

void StepSimulation::send_begun(std::size_t link, Seconds until) {
  send_left(link, until);
  while (!queues_[link].empty()) {
    const Queued& next = queues_[link].front();
    const Seconds begin = std::max(links_[link], next.ready);
    if (begin >= until) return;
    const bool is_late = begin + taken_[next.term] > latest_fetch(link, until);
    const Early early = is_late ? fetch_early(link, until) : Early::kNoRoom;
    if (early == Early::kNoTime) return;
    if (early == Early::kNoRoom) send_first(link);
  }
}

void StepSimulation::send_before_weights(std::size_t link, Seconds room) {
  while (!queues_[link].empty()) {
    const Queued& next = queues_[link].front();
    const Seconds end = std::max(links_[link], next.ready) + taken_[next.term];
    if (end > std::max(latest_fetch(link, compute_), room)) return;
    send_first(link);
  }
}

void StepSimulation::find_fetches() {
  for (const std::size_t t : pass_) {
    worked_before_.push_back(pass_seconds_);
    const CostTerm& term = cost_.terms[t];
    if (kinds_[t] == Kind::kCompute) pass_seconds_ += taken_[t];
    pass_seconds_ += taken_[t] * streams_.waiting(kinds_[t], term.value, when_of(term));
    if (kinds_[t] == Kind::kFetched) fetches_[link_of_term(t)].terms.push_back(t);
  }
  for (std::size_t link = 0; link < fetches_.size(); ++link) {
    Fetches& fetches = fetches_[link];
    if (fetches.terms.empty()) continue;
    fetches.latest_of_last = latest_fetches(link, kInfinity);
    fetches.latest = latest_fetches(link, pass_seconds_ + fetches.latest_of_last.front());
  }
}

std::vector<Seconds> StepSimulation::latest_fetches(std::size_t link, Seconds behind) const {
  std::vector<Seconds> latest;
  for (std::size_t i = pass_.size(); i-- > 0;) {
    const std::size_t t = pass_[i];
    if (!communicating(cost_.terms[t]) || link_of_term(t) != link) continue;
    const Seconds needed = worked_before_[i];
    if (kinds_[t] == Kind::kBlocking && behind < needed + taken_[t]) {
      behind = std::min(behind - taken_[t], needed);
    }
    if (kinds_[t] != Kind::kFetched) continue;
    behind = std::min(behind, needed) - taken_[t];
    latest.push_back(behind);
  }
  std::reverse(latest.begin(), latest.end());
  return latest;
}

Seconds StepSimulation::latest_fetch(std::size_t link, Seconds now) const {
  const Fetches& fetches = fetches_[link];
  if (fetches.terms.empty()) return kInfinity;
  const std::vector<Seconds>& latest = last_ ? fetches.latest_of_last : fetches.latest;
  const bool of_pass = fetches.next < latest.size();
  if (!of_pass && last_) return kInfinity;
  return now - worked_ + (of_pass ? latest[fetches.next] : pass_seconds_ + latest.front());
}

HeldAhead::Begin StepSimulation::behind_arrived(Seconds free, Part before) const {
  return arrived_ > free ? HeldAhead::Begin{arrived_, arrived_part_}
                         : HeldAhead::Begin{free, before};
}

HeldAhead::Begin StepSimulation::first_room(std::size_t t, Seconds free, Part before) {
  return held().earliest(ahead_bytes_[t], behind_arrived(free, before));
}

StepSimulation::Early StepSimulation::fetch_early(std::size_t link, Seconds until) {
  Fetches& fetches = fetches_[link];
  if (fetches.next == fetches.terms.size()) return Early::kNoTime;
  const std::size_t t = fetches.terms[fetches.next];
  const auto free = behind_arrived(std::max(links_[link], host_), link_part_[link]);
  if (free.at + taken_[t] > until) return Early::kNoTime;
  const OpId reader = when_of(cost_.terms[t]);
  const auto begin = held().earliest_for(reader, ahead_bytes_[t], free);
  if (!begin || begin->at + taken_[t] > until) return Early::kNoRoom;
  held().hold_for(reader, ahead_bytes_[t], begin->at);
  links_[link] = begin->at + taken_[t];
  under_way_[link].reset();
  link_part_[link] = part(t, static_cast<int>(link), taken_[t], begin->part);
  note(StepEvent::Stream::kLink, t, links_[link]);
  fetches.early.push_back({t, links_[link], link_part_[link]});
  ++fetches.next;
  return Early::kFetched;
}

// A reshard in several steps holds what it makes from the first of them on, and what it was given
// until the last. Of interleaved passes each has its weights, as the plan's account has it.
void StepSimulation::find_held() {
  ahead_bytes_.assign(cost_.terms.size(), 0);
  std::size_t before = cost_.terms.size();  // the step before
  for (const std::size_t t : pass_) {
    const CostTerm& term = cost_.terms[t];
    if (kinds_[t] != Kind::kFetched && kinds_[t] != Kind::kSummed) continue;
    const bool goes_on = before < t && kinds_[before] == kinds_[t] &&
                         when_of(cost_.terms[before]) == when_of(term) &&
                         cost_.terms[before].value == term.value &&
                         cost_.terms[before].to_hub == term.to_hub;
    if (kinds_[t] == Kind::kFetched) {
      ahead_bytes_[t] = goes_on ? 0 : graph_.copies * term.temporaries;
    } else {
      ahead_bytes_[t] = term.source + term.temporaries;
      if (goes_on) ahead_bytes_[before] = 0;
    }
    before = t;
  }
}

void StepSimulation::find_left() {
  std::map<ValueId, std::size_t> reader;  // the first of each
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    for (const ValueId id : graph_.ops[o].inputs) {
      if (id.valid()) reader.emplace(id, o);
    }
  }
  const auto read_by = [&](std::size_t t) {
    const auto found = reader.find(streams_.next_of(cost_.terms[t].value));
    return found == reader.end() ? graph_.ops.size() : found->second;
  };
  std::stable_sort(next_.begin(), next_.end(),
                   [&](std::size_t a, std::size_t b) { return read_by(a) < read_by(b); });
  for (const std::size_t t : next_) {
    left_[link_of_term(t)].push_back({read_by(t), t});
    first_left_ = std::min(first_left_, read_by(t));
  }
}

Seconds StepSimulation::send_next(std::size_t link) {
  const std::size_t t = left_[link].front().term;
  left_[link].pop_front();
  ++sent_[link];
  under_way_[link].reset();
  issue(t);
  links_[link] += taken_[t];
  found_.communication += taken_[t];
  link_part_[link] = part(t, static_cast<int>(link), taken_[t], link_part_[link]);
  note(StepEvent::Stream::kLink, t, links_[link]);
  slow(t);
  return links_[link];
}

void StepSimulation::send_left(std::size_t link, Seconds until) {
  while (!left_[link].empty() && links_[link] < until) send_next(link);
}

void StepSimulation::wait_for_weights(OpId when) {
  if (when.index() < first_left_) return;
  first_left_ = graph_.ops.size() + 1;
  std::vector<Arrival> arrivals;
  for (std::size_t link = 0; link < left_.size(); ++link) {
    while (!left_[link].empty() && left_[link].front().reader <= when.index()) {
      const std::size_t t = left_[link].front().term;
      const Seconds at = send_next(link);
      arrivals.push_back({t, at, link_part_[link]});
      if (at <= arrived_) continue;
      arrived_ = at;
      arrived_part_ = link_part_[link];
    }
    if (!left_[link].empty()) first_left_ = std::min(first_left_, left_[link].front().reader);
  }
  for (const Arrival& its : arrivals) wait(its.term, its.at, its.part);
}

void StepSimulation::finish(OpId id) {
  if (!last_) return;
  for (const ValueId output : graph_.op(id).outputs) {
    if (!output.valid()) continue;
    for (const std::size_t t : pending_[output.index()]) queue(t);
  }
}

void StepSimulation::note_behind(OpId op) {
  for (std::size_t l = 0; l < links_.size(); ++l) {
    Ahead& ahead = ahead_[l];
    if (ahead.link != links_[l] || ahead.sent != sent_[l]) {
      ahead = {links_[l], sent_[l], links_[l]};
    }
    while (ahead.left < left_[l].size() && ahead.free < compute_) {
      ahead.free += taken_[left_[l][ahead.left++].term];
    }
    while (ahead.queued < queues_[l].size()) {
      const Queued& next = queues_[l][ahead.queued];
      const Seconds begin = std::max(ahead.free, next.ready);
      if (begin >= compute_ || begin + taken_[next.term] > latest_fetch(l, compute_)) break;
      ahead.free = begin + taken_[next.term];
      ++ahead.queued;
    }
    if (ahead.free > compute_) {
      const Seconds behind = ahead.free - compute_;
      const Seconds longest = longest_blocking_[l];
      const bool shares = (ahead.queued > 0 || under_way_[l].has_value()) && longest > 0;
      path_->note_behind(op, static_cast<int>(l), shares ? std::min(behind, longest) : behind);
    }
  }
}

}  // namespace autopar
