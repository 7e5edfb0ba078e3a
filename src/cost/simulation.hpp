// One device that runs a step op by op and pass by pass, with its streams beside each other: what
// simulate() says (cost.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "autopar/cost.hpp"
#include "autopar/problem.hpp"
#include "cost/critical_path.hpp"

namespace autopar {

// How interleaved passes take turns on the compute stream: each as far as it has to wait for
// collectives, or whichever can go on first.
enum class Turns : std::uint8_t { kSections, kReady };

class StepSimulation {
 public:
  StepSimulation(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                 const Cluster& cluster, const std::string& updates, Turns turns,
                 std::vector<StepEvent>* events, CriticalPath* path = nullptr)
      : turns_(turns),
        path_(path),
        graph_(graph),
        cost_(cost),
        events_(events),
        profile_(cluster.profile),
        mesh_(mesh),
        streams_(graph, updates, mesh, cluster.profile),
        pending_(graph.values.size()),
        found_{0, 0, 0, 0, {}, std::vector<Seconds>(cost.terms.size(), 0)} {
    for (std::size_t t = 0; t < cost.terms.size(); ++t) {
      const CostTerm& term = cost.terms[t];
      const OpId when = when_of(term);
      const bool communicates = communicating(term);
      kinds_.push_back(communicates ? streams_.kind(term.value, when, term.collective.kind)
                                    : Kind::kCompute);
      taken_.push_back(once(term));
      if (communicates && streams_.in_buckets(term.value, when)) {
        const auto times = static_cast<double>(std::max<std::int64_t>(1, term.times));
        const Seconds latency = collective_seconds(term.collective, 1, mesh, cluster);
        taken_[t] -= saved_in_bucket(profile_, once(term), latency, term.sent_bytes / times);
      }
      (graph.op(when).phase == Phase::kUpdate ? update_ : pass_).push_back(t);
      const ValueId source = streams_.source_of(term.value);
      if (kinds_[t] == Kind::kAwaited && graph.value(source).producer.valid()) {
        pending_[source.index()].push_back(t);
      }
      if (kinds_[t] == Kind::kNext) next_.push_back(t);
      add_busy(t, when);
    }
    if (graph.copies > 1) find_sections();
  }

  StepTime run() {
    find_left();
    if (graph_.copies > 1) {
      run_copies();
    } else {
      for (now_ = 0; now_ < graph_.passes; ++now_) {
        last_ = now_ + 1 == graph_.passes;
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

 private:
  using Kind = Streams::Kind;
  using Part = CriticalPath::Part;

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
    const int link = communicating(term) ? link_of(term.collective.axes, mesh_) : 0;
    StreamTimes shares = streams_.shares(kinds_[t], term.value, when, link);
    const auto to = found_.busy.all(), from = shares.all();
    for (std::size_t s = 0; s < to.size(); ++s) *to[s] += taken_[t] * *from[s];
    if (!is_issued(term, when)) return;
    const bool sends = communicating(term);
    found_.busy.host += sends ? streams_.issuing(kinds_[t], when, ranks_of(term.collective))
                              : streams_.issuing(when);
  }

  Seconds once(const CostTerm& term) const {
    return term.seconds / static_cast<double>(std::max<std::int64_t>(1, term.times));
  }

  void run_all(const std::vector<std::size_t>& terms) { run_part(terms, 0, terms.size()); }

  // Those from `begin` to `end`.
  void run_part(const std::vector<std::size_t>& terms, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const CostTerm& term = cost_.terms[terms[i]];
      const OpId when = when_of(term);
      const bool is_first = i == 0 || !(when_of(cost_.terms[terms[i - 1]]) == when);
      if (is_first && path_ != nullptr) note_behind(when);
      run(terms[i], term, when);
      const bool is_last = i + 1 == terms.size() || !(when_of(cost_.terms[terms[i + 1]]) == when);
      if (is_last) finish(when);
    }
  }

  // Interleaved passes are so many programs on one compute stream.
  void run_copies() {
    waiting_.assign(static_cast<std::size_t>(graph_.copies), {});
    for (first_ = 0; first_ < graph_.passes; first_ += graph_.copies) {
      at_.assign(waiting_.size(), 0);
      if (turns_ == Turns::kSections) {
        for (const std::size_t end : section_ends()) {
          for (std::size_t c = 0; c < at_.size(); ++c) {
            while (at_[c] < end) run_next(c);
          }
        }
      } else {
        for (auto next = first_ready(); next; next = first_ready()) run_next(*next);
      }
    }
    for (Waiting& waiting : waiting_) go_on(waiting);
  }

  // The copy that can go on first; of several the one that soonest has collectives to send. None is
  // ahead of the one before it, whose sums it goes on from.
  std::optional<std::size_t> first_ready() const {
    std::optional<std::size_t> best;
    std::pair<Seconds, Seconds> least;
    for (std::size_t c = 0; c < at_.size(); ++c) {
      if (at_[c] == pass_.size() || (c > 0 && at_[c] == at_[c - 1])) continue;
      const std::pair key(std::max(compute_, waiting_[c].until), left_in_section_[at_[c]]);
      if (best && least <= key) continue;
      best = c;
      least = key;
    }
    return best;
  }

  // One term of a copy, and the collectives behind it that it waits for.
  void run_next(std::size_t c) {
    Waiting& waiting = waiting_[c];
    now_ = first_ + static_cast<std::int64_t>(c);
    last_ = now_ + 1 == graph_.passes;
    if (!blocks(at_[c])) go_on(waiting);
    leaves_for_ = &waiting;
    do {
      run_part(pass_, at_[c], at_[c] + 1);
      ++at_[c];
    } while (at_[c] < pass_.size() && blocks(at_[c]));
    leaves_for_ = nullptr;
  }

  bool blocks(std::size_t i) const { return kinds_[pass_[i]] == Kind::kBlocking; }

  // For each term of a pass: what compute does from there until it has to wait.
  void find_sections() {
    left_in_section_.resize(pass_.size());
    Seconds left = 0;
    for (std::size_t i = pass_.size(); i-- > 0;) {
      if (blocks(i)) {
        left = 0;
      } else if (kinds_[pass_[i]] == Kind::kCompute) {
        left += taken_[pass_[i]];
      }
      left_in_section_[i] = left;
    }
  }

  // Behind collectives that compute waits for, and behind the last term.
  std::vector<std::size_t> section_ends() const {
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < pass_.size(); ++i) {
      const bool is_last = i + 1 == pass_.size();
      if (is_last || (blocks(i) && !blocks(i + 1))) ends.push_back(i + 1);
    }
    return ends;
  }

  // What a pass waits for while others compute.
  struct Waiting {
    struct Part {
      std::size_t term;
      Seconds waited;  // for it, if nothing else were there
      Seconds span;    // the same, and what it stands behind
    };
    Seconds until = 0;
    std::vector<Part> parts;
  };

  // The rest of the time compute waits; the other part the collectives went on beside it.
  void go_on(Waiting& waiting) {
    Seconds left = std::max(0.0, waiting.until - compute_);
    compute_ += left;
    Seconds beside = 0;
    for (auto part = waiting.parts.rbegin(); part != waiting.parts.rend(); ++part) {
      const Seconds exposed = std::min(left, part->span);
      const Seconds lost = std::min(part->waited, part->span - exposed) * profile_.slowdown;
      found_.exposed[part->term] += exposed + lost;
      left -= exposed;
      beside += lost;
    }
    compute_ += beside;
    waiting = {};
  }

  void run(std::size_t t, const CostTerm& term, OpId when) {
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
    Seconds& link = link_for(t);
    if (kinds_[t] == Kind::kFetched) {
      fetch(t);
      slow(t);
      return;
    }
    const Seconds behind = made();
    const Seconds ready = std::max(behind, host_);
    send_begun(link_of_term(t), ready);
    const Seconds start = std::max(ready, link);
    const Seconds waited = taken * streams_.waiting(kinds_[t], term.value, when);
    Part& on_link = link_part_[link_of_term(t)];
    idle_[link_of_term(t)] = {std::max(link, host_), start, on_link};
    if (path_ != nullptr) {
      const Part after = link > ready ? on_link : compute_part_;
      on_link = part(t, static_cast<int>(link_of_term(t)), taken, after);
      compute_part_ = part(t, CriticalPath::kCompute, waited, after);
    }
    link = start + taken;
    note(StepEvent::Stream::kLink, t, link);
    if (leaves_for_ != nullptr) {
      leaves_for_->until = start + waited;
      leaves_for_->parts.push_back({t, waited, start + waited - behind});
      return;
    }
    compute_ = start + waited;
    found_.exposed[t] += compute_ - ready;
  }

  // When all is there that the pass has made so far.
  Seconds made() const {
    return leaves_for_ == nullptr ? compute_ : std::max(compute_, leaves_for_->until);
  }

  // What a collective beside compute takes of it.
  void slow(std::size_t t) {
    const Seconds lost = taken_[t] * profile_.slowdown;
    compute_ += lost;
    found_.exposed[t] += lost;
  }

  // `for_what`: the part of the step that ends then.
  void wait(std::size_t t, Seconds until, Part for_what) {
    if (until <= compute_) return;
    compute_part_ = for_what;
    found_.exposed[t] += until - compute_;
    compute_ = until;
  }

  std::size_t link_of_term(std::size_t t) const {
    return static_cast<std::size_t>(link_of(cost_.terms[t].collective.axes, mesh_));
  }
  Seconds& link_for(std::size_t t) { return links_[link_of_term(t)]; }

  // For what only the update waits for: it is sent in the order in which it is made, when the link
  // is free and no weight that is fetched would come too late for it. What compute waits for goes
  // before what has not begun.
  void queue(std::size_t t) {
    issue(t);
    found_.communication += taken_[t];
    queues_[link_of_term(t)].push_back({t, std::max(made(), host_), compute_part_});
    slow(t);
  }

  // Until the weight is there: it is fetched while the link was idle before the last collective
  // that compute waited for, where that was long enough, else when the link is free.
  void fetch(std::size_t t) {
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
    before = part(t, static_cast<int>(link), taken_[t], before);
    note(StepEvent::Stream::kLink, t, end);
    wait(t, end, before);
  }

  void send_first(std::size_t link) {
    const auto [t, ready, made_by] = queues_[link].front();
    send_left(link, ready);
    queues_[link].pop_front();
    ++sent_[link];
    link_part_[link] = part(t, static_cast<int>(link), taken_[t],
                            ready > links_[link] ? made_by : link_part_[link]);
    links_[link] = std::max(links_[link], ready) + taken_[t];
    note(StepEvent::Stream::kLink, t, links_[link]);
    done_[t] = links_[link];
    done_part_[t] = link_part_[link];
    if (kinds_[t] != Kind::kSummed) return;
    if (summed_ && links_[link] <= summed_->second) return;
    summed_ = {t, links_[link]};
    summed_part_ = link_part_[link];
  }

  void send_all(std::size_t link) {
    while (!queues_[link].empty()) send_first(link);
  }

  // What can begin before `until`, when something is to be sent that compute waits for.
  void send_begun(std::size_t link, Seconds until) {
    send_left(link, until);
    while (!queues_[link].empty()) {
      if (std::max(links_[link], queues_[link].front().ready) >= until) return;
      send_first(link);
    }
  }

  void send_before(std::size_t t, Seconds taken) {
    const std::size_t link = link_of_term(t);
    while (!queues_[link].empty()) {
      const auto [other, ready, made_by] = queues_[link].front();
      if (std::max(links_[link], ready) + taken_[other] + taken > compute_) return;
      send_first(link);
    }
  }

  // What the step before has left for this one, in the order in which it is needed.
  void find_left() {
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

  // When it is there: as soon as the link is free.
  Seconds send_next(std::size_t link) {
    const std::size_t t = left_[link].front().term;
    left_[link].pop_front();
    ++sent_[link];
    issue(t);
    links_[link] += taken_[t];
    found_.communication += taken_[t];
    link_part_[link] = part(t, static_cast<int>(link), taken_[t], link_part_[link]);
    note(StepEvent::Stream::kLink, t, links_[link]);
    slow(t);
    return links_[link];
  }

  // Those that can begin before `until`, when something else is to be sent.
  void send_left(std::size_t link, Seconds until) {
    while (!left_[link].empty() && links_[link] < until) send_next(link);
  }

  void wait_for_weights(OpId when) {
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

  // What waits for the values of an op begins.
  void finish(OpId id) {
    if (!last_) return;
    for (const ValueId output : graph_.op(id).outputs) {
      if (!output.valid()) continue;
      for (const std::size_t t : pending_[output.index()]) queue(t);
    }
  }

  std::int64_t ranks_of(const Collective& collective) const {
    return axes_size(mesh_, collective.axes);
  }

  void issue(std::size_t t) {
    Seconds taken = profile_.host_s;
    const CostTerm& term = cost_.terms[t];
    if (communicating(term) && streams_.holds_host(kinds_[t], when_of(term))) {
      taken += profile_.waited_host_s(ranks_of(term.collective));
    }
    host_ += taken;
    found_.host += taken;
    if (events_ == nullptr) return;
    events_->push_back({StepEvent::Stream::kHost, 0, t, now_, host_ - taken, taken});
  }
  void note(StepEvent::Stream stream, std::size_t t, Seconds end) {
    if (events_ == nullptr) return;
    const bool links = stream == StepEvent::Stream::kLink;
    const int link = links ? link_of(cost_.terms[t].collective.axes, mesh_) : 0;
    events_->push_back({stream, link, t, now_, end - taken_[t], taken_[t]});
  }
  // What a collective that compute waits for there would wait for: what was sent, and then what
  // would begin before it. As long as nothing is sent, only more of that does.
  void note_behind(OpId op) {
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
        path_->note_behind(op, static_cast<int>(l), ahead.free - compute_);
      }
    }
  }
  // Of the path, if somebody asks.
  Part part(std::size_t t, int link, Seconds taken, Part after) {
    return path_ == nullptr ? CriticalPath::kNone : path_->add(t, link, taken, after);
  }
  Seconds host_of(bool launches) const { return launches ? host_ : 0; }

  const Turns turns_;
  CriticalPath* const path_;  // null: nobody asks
  const Graph& graph_;
  const StrategyCost& cost_;
  std::vector<StepEvent>* const events_;  // null: nobody asks
  const Profile& profile_;
  const Mesh& mesh_;
  const Streams streams_;
  std::vector<std::vector<std::size_t>> pending_;  // per value what is sent of it for the update
  std::vector<Kind> kinds_;
  std::vector<Seconds> taken_;  // per term, once
  std::vector<std::size_t> pass_, update_;
  std::map<std::size_t, Seconds> done_;
  std::map<std::size_t, Part> done_part_;
  Part compute_part_ = CriticalPath::kNone, summed_part_ = CriticalPath::kNone;
  std::array<Part, kLinks> link_part_ = {CriticalPath::kNone, CriticalPath::kNone,
                                         CriticalPath::kNone};
  std::int64_t now_ = 0;  // which pass
  bool last_ = false;
  // Of interleaved passes: the number of the first; per copy its next term and what it waits for.
  std::int64_t first_ = 0;
  std::vector<std::size_t> at_;
  std::vector<Waiting> waiting_;
  std::vector<Seconds> left_in_section_;  // per term of a pass
  Waiting* leaves_for_ = nullptr;  // the copy that goes on later with what its collectives give
  // Updated weights that were not yet gathered, per link, and the first op that reads one.
  struct Left {
    std::size_t reader, term;
  };
  std::vector<std::size_t> next_;
  std::array<std::deque<Left>, kLinks> left_;
  std::size_t first_left_ = std::numeric_limits<std::size_t>::max();
  struct Arrival {
    std::size_t term;
    Seconds at;
    Part part;
  };
  Seconds arrived_ = 0;  // the last that was waited for
  Part arrived_part_ = CriticalPath::kNone;
  // Until when a link was idle before the last collective that compute waited for.
  struct Idle {
    Seconds begin = 0, end = 0;
    Part before = CriticalPath::kNone;  // what the link had done then
  };
  std::array<Idle, kLinks> idle_;
  struct Queued {
    std::size_t term;
    Seconds ready;
    Part made_by;
  };
  std::array<std::deque<Queued>, kLinks> queues_;  // what only the update waits for, per link
  std::array<std::size_t, kLinks> sent_ = {};      // of `queues_` and `left_`
  // What goes over a link before what compute would wait for now: how many of `left_` and of
  // `queues_`, and when it is free then; as long as the link itself is where it was.
  struct Ahead {
    Seconds link = 0;
    std::size_t sent = 0;
    Seconds free = 0;
    std::size_t left = 0, queued = 0;
  };
  std::array<Ahead, kLinks> ahead_;
  // The last sum of a gradient that a pass has made: which term, and when it is there.
  std::optional<std::pair<std::size_t, Seconds>> summed_;
  std::array<Seconds, kLinks> links_ = {};  // until when they are busy
  Seconds compute_ = 0, host_ = 0;
  StepTime found_;
};

}  // namespace autopar
