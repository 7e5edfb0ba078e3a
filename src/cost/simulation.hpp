// One device that runs a step op by op and pass by pass, with its streams beside each other: what
// simulate() says (cost.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "autopar/cost.hpp"
#include "autopar/problem.hpp"
#include "cost/critical_path.hpp"
#include "cost/held_ahead.hpp"

namespace autopar {

// How interleaved passes take turns on the compute stream: each as far as it has to wait for
// collectives, or whichever can go on first.
enum class Turns : std::uint8_t { kSections, kReady };

class StepSimulation {
 public:
  StepSimulation(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                 const Cluster& cluster, const std::string& updates, Turns turns,
                 std::vector<StepEvent>* events, CriticalPath* path = nullptr);
  // Each event as it begins, if somebody asks.
  using Visit = std::function<void(const StepEvent&)>;
  void visit(const Visit& visit) { visit_ = &visit; }

  StepTime run();

 private:
  using Kind = Streams::Kind;
  using Part = CriticalPath::Part;

  static bool communicating(const CostTerm& term) {
    return term.kind == CostTerm::Kind::kCollective && communicates(term.collective.kind);
  }
  OpId when_of(const CostTerm& term) const { return autopar::when_of(term, graph_); }
  Seconds once(const CostTerm& term) const {
    return term.seconds / static_cast<double>(std::max<std::int64_t>(1, term.times));
  }
  std::int64_t ranks_of(const Collective& collective) const {
    return axes_size(mesh_, collective.axes);
  }
  std::size_t link_of_term(std::size_t t) const {
    return static_cast<std::size_t>(link_of(cost_.terms[t].collective.axes, mesh_));
  }

  // Term by term (simulation.cpp).

  // Waits for gradients where it has no room for them.
  void begin_op(OpId op);
  HeldAhead& held() { return held_[static_cast<std::size_t>(now_ % graph_.copies)]; }
  void run_all(const std::vector<std::size_t>& terms) { run_part(terms, 0, terms.size()); }
  // Those from `begin` to `end`.
  void run_part(const std::vector<std::size_t>& terms, std::size_t begin, std::size_t end);
  void run(std::size_t t, const CostTerm& term, OpId when);
  // What compute waits for: when the link is free, or beside a sum that is under way there and has
  // more left. Then each has half of the link.
  void block(std::size_t t, const CostTerm& term, OpId when);
  // What an op does beside its collectives is issued with its kernel.
  bool is_issued(const CostTerm& term, OpId when) const;
  void issue(std::size_t t);
  Seconds host_of(bool launches) const { return launches ? host_ : 0; }
  void add_busy(std::size_t t, OpId when);
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
  void note(StepEvent::Stream stream, std::size_t t, Seconds end) {
    note(stream, t, end, taken_[t]);
  }
  void note(StepEvent::Stream stream, std::size_t t, Seconds end, Seconds spans);
  bool notes() const { return events_ != nullptr || visit_ != nullptr; }
  void note(const StepEvent& event) {
    if (events_ != nullptr) events_->push_back(event);
    if (visit_ != nullptr) (*visit_)(event);
  }
  // Of the path, if somebody asks.
  Part part(std::size_t t, int link, Seconds taken, Part after) {
    return path_ == nullptr ? CriticalPath::kNone : path_->add(t, link, taken, after);
  }

  // Interleaved passes, so many programs on one compute stream (simulation_copies.cpp).

  void run_copies();
  // The copy that can go on first; of several the one that soonest has collectives to send. None is
  // ahead of the one before it, whose sums it goes on from.
  std::optional<std::size_t> first_ready() const;
  // One term of a copy, and the collectives behind it that it waits for.
  void run_next(std::size_t c);
  bool blocks(std::size_t i) const { return kinds_[pass_[i]] == Kind::kBlocking; }
  // For each term of a pass: what compute does from there until it has to wait.
  void find_sections();
  // Behind collectives that compute waits for, and behind the last term.
  std::vector<std::size_t> section_ends() const;
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
  void go_on(Waiting& waiting);

  // What goes over links beside compute (simulation_links.cpp).

  // For what only the update waits for: it is sent in the order in which it is made, when the link
  // is free and no weight that is fetched would come too late for it. What compute waits for goes
  // before what has not begun. A gradient is made again when its sum of the pass before was sent.
  void queue(std::size_t t);
  void send_first(std::size_t link);
  void note_done(std::size_t t, std::size_t link, Seconds end);
  void send_all(std::size_t link);
  // What can begin before `until`, when something is to be sent that compute waits for.
  void send_begun(std::size_t link, Seconds until);
  // A sum that shares its link ends so much later.
  // The first of the gradients that wait for their links, or go over them, has gone.
  void wait_for_sum();
  void drop_sent();
  void delay_under_way(std::size_t link, Seconds by);
  // What does not make the weight late that is fetched next, or one behind it. It cannot be fetched
  // before `room`.
  void send_before_weights(std::size_t link, Seconds room);
  // What waits for the values of an op begins.
  void finish(OpId id);
  // Until the weight is there: it is fetched while the link was idle before the last collective
  // that compute waited for, where that was long enough, else when the link is free.
  void fetch(std::size_t t);
  // What each link has to fetch in a pass, and by when (not of interleaved passes: who comes first
  // is found on the way).
  void find_fetches();
  // From the last to the first, where the link has to begin something `behind` the pass; in order.
  std::vector<Seconds> latest_fetches(std::size_t link, Seconds behind) const;
  // When the link has to begin what it fetches next, if compute comes so far at `now`.
  Seconds latest_fetch(std::size_t link, Seconds now) const;
  // In place of a sum that would make it late: if it is there before `until`.
  enum class Early : std::uint8_t { kFetched, kNoTime, kNoRoom };
  Early fetch_early(std::size_t link, Seconds until);
  // When a weight can be fetched, if the link is free from `free` on: not before those that were
  // waited for have arrived, and nor before there is room.
  HeldAhead::Begin behind_arrived(Seconds free, Part before) const;
  HeldAhead::Begin first_room(std::size_t t, Seconds free, Part before);
  // What is held ahead for each term.
  void find_held();
  // What the step before has left for this one, in the order in which it is needed.
  void find_left();
  // When it is there: as soon as the link is free.
  Seconds send_next(std::size_t link);
  // Those that can begin before `until`, when something else is to be sent.
  void send_left(std::size_t link, Seconds until);
  void wait_for_weights(OpId when);
  // What a collective that compute waits for there would wait for: what was sent, and then what
  // would begin before it. As long as nothing is sent, only more of that does.
  void note_behind(OpId op);

  const Turns turns_;
  CriticalPath* const path_;  // null: nobody asks
  const Graph& graph_;
  const StrategyCost& cost_;
  std::vector<StepEvent>* const events_;  // null: nobody asks
  const Visit* visit_ = nullptr;          // null: nobody asks
  const Profile& profile_;
  const Mesh& mesh_;
  const Streams streams_;
  std::vector<std::vector<std::size_t>> pending_;  // per value what is sent of it for the update
  std::vector<Kind> kinds_;
  std::vector<Seconds> taken_;      // per term, once
  std::vector<Bytes> ahead_bytes_;  // per term what is held for it before its op, or behind it
  std::vector<HeldAhead> held_;     // of interleaved passes: of each
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
  // The weights that a link fetches in a pass, in order.
  struct Fetches {
    std::vector<std::size_t> terms;
    // When each has to begin so that it is there in time, and all behind it: seconds since the pass
    // began, if compute waits for nothing else. In the last pass, and where another one follows.
    std::vector<Seconds> latest_of_last, latest;
    std::size_t next = 0;       // in this pass
    std::deque<Arrival> early;  // before compute came to where they are needed
  };
  std::array<Fetches, kLinks> fetches_;
  std::vector<Seconds> worked_before_;  // per term of a pass: what compute does in it before that
  Seconds worked_ = 0, pass_seconds_ = 0;
  Seconds arrived_ = 0;  // the last that was waited for
  Part arrived_part_ = CriticalPath::kNone;
  // Until when a link was idle before the last collective that compute waited for.
  struct Idle {
    Seconds begin = 0, end = 0;
    Part before = CriticalPath::kNone;  // what the link had done then
  };
  std::array<Idle, kLinks> idle_;
  // The sum that a link was given last, as long as nothing else was, and its event.
  struct UnderWay {
    std::size_t term, event;
    Seconds begin;
  };
  std::array<std::optional<UnderWay>, kLinks> under_way_;
  std::array<Seconds, kLinks> longest_blocking_ = {};  // so far, where somebody asks for the path
  struct Queued {
    std::size_t term;
    Seconds ready;
    Part made_by;
  };
  // Sums of gradients that are held until they are done, those of each link in order.
  struct Sent {
    std::size_t term;
    Seconds end;
    Part part;
  };
  std::array<std::deque<Sent>, kLinks> sums_sent_;
  Bytes sums_held_ = 0;                            // of these and of `queues_`
  std::array<std::deque<Queued>, kLinks> queues_;  // what only the update waits for, per link
  std::vector<std::int64_t> queued_;               // per term: how often it is there
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
