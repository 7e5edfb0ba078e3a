// What goes over the links beside compute, and in which order.
#include <algorithm>
#include <map>
#include <vector>

#include "cost/simulation.hpp"

namespace autopar {

void StepSimulation::queue(std::size_t t) {
  issue(t);
  found_.communication += taken_[t];
  queues_[link_of_term(t)].push_back({t, std::max(made(), host_), compute_part_});
  slow(t);
}

void StepSimulation::fetch(std::size_t t) {
  const std::size_t link = link_of_term(t);
  Idle& idle = idle_[link];
  const bool fits = std::max(idle.begin, arrived_) + taken_[t] <= idle.end;
  if (!fits) {
    send_before(t, taken_[t]);
    links_[link] = std::max(links_[link], host_);
  }
  Seconds& end = fits ? idle.begin : links_[link];
  Part& before = fits ? idle.before : link_part_[link];
  if (arrived_ > end) {
    end = arrived_;
    before = arrived_part_;
  }
  end += taken_[t];
  if (!fits) under_way_[link].reset();
  before = part(t, static_cast<int>(link), taken_[t], before);
  note(StepEvent::Stream::kLink, t, end);
  wait(t, end, before);
}

void StepSimulation::send_first(std::size_t link) {
  const auto [t, ready, made_by] = queues_[link].front();
  send_left(link, ready);
  queues_[link].pop_front();
  ++sent_[link];
  link_part_[link] =
      part(t, static_cast<int>(link), taken_[t], ready > links_[link] ? made_by : link_part_[link]);
  const Seconds begin = std::max(links_[link], ready);
  links_[link] = begin + taken_[t];
  under_way_[link] = {t, events_ == nullptr ? 0 : events_->size(), begin};
  note(StepEvent::Stream::kLink, t, links_[link]);
  note_done(t, link, links_[link]);
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
}

void StepSimulation::send_all(std::size_t link) {
  while (!queues_[link].empty()) send_first(link);
}

void StepSimulation::send_begun(std::size_t link, Seconds until) {
  send_left(link, until);
  while (!queues_[link].empty()) {
    if (std::max(links_[link], queues_[link].front().ready) >= until) return;
    send_first(link);
  }
}

void StepSimulation::send_before(std::size_t t, Seconds taken) {
  const std::size_t link = link_of_term(t);
  while (!queues_[link].empty()) {
    const auto [other, ready, made_by] = queues_[link].front();
    if (std::max(links_[link], ready) + taken_[other] + taken > compute_) return;
    send_first(link);
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
      if (begin >= compute_) break;
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
