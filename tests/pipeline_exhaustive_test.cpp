// Named schedules against the best there is: all schedules of up to three stages and four
// micro-batches, under the memory that the named one takes.
//
// A schedule is judged by its longest span, from the start of a stage's first action to the end of
// its last. Times are whole, so stages may as well act in steps of one unit. Micro-batches are
// alike and none is in a hurry, so a chunk takes them in their order in each phase: a schedule in
// which it does not can be renamed into one in which it does. What is left is, step by step, which
// of its chunks' next passes each stage begins, or whether it waits. All that counts of the past
// are the numbers of passes done, what is going on and when each stage began; states are visited in
// the order of time, each once, and left where a stage can no longer end in time.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <iostream>
#include <map>
#include <optional>
#include <unordered_set>

#include "autopar/pipeline.hpp"

namespace autopar::pipeline_exhaustive_test {

namespace {

constexpr std::size_t kMostStages = 3, kMostChunks = 6;

struct Instance {
  std::vector<std::int64_t> stage_of_chunk;
  std::size_t stages = 1;
  int micro_batches = 1;
  // Seconds of F, of B or I, and of W; 0: the backward pass is whole.
  std::array<int, 3> seconds = {1, 2, 0};
  std::vector<std::int64_t> most_in_flight;  // of chunks, by stage
};

// Passes begun (while one goes on) or done, by phase and chunk.
struct State {
  std::array<std::array<std::uint8_t, kMostChunks>, 3> done = {};
  struct Running {
    std::uint8_t phase = 0;
    std::uint8_t chunk = 0;
    std::uint8_t left = 0;  // seconds; 0: nothing runs
    bool operator==(const Running&) const = default;
  };
  std::array<Running, kMostStages> running = {};
  std::array<std::uint8_t, kMostStages> began = {};  // step of the first action, counted from 1
  bool operator==(const State&) const = default;
};
struct Hash {
  std::size_t operator()(const State& state) const {
    static_assert(std::has_unique_object_representations_v<State>);
    const std::string_view bytes(reinterpret_cast<const char*>(&state), sizeof state);
    return std::hash<std::string_view>()(bytes);
  }
};

class Search {
 public:
  Search(const Instance& instance, int most_span) : in_(instance), most_span_(most_span) {}

  // Whether there is a schedule in which no span is longer.
  bool finds() {
    layer_ = {State{}};
    for (int time = 0; !layer_.empty(); ++time) {
      std::vector<State> now;
      std::swap(now, layer_);
      for (const State& state : now) {
        if (is_done(state)) return true;
        choose(state, 0, time);
      }
    }
    return false;
  }
  std::size_t states() const { return seen_.size(); }

 private:
  bool has_weights() const { return in_.seconds[2] > 0; }
  std::size_t chunks() const { return in_.stage_of_chunk.size(); }
  bool is_of(std::size_t chunk, std::size_t stage) const {
    return in_.stage_of_chunk[chunk] == static_cast<std::int64_t>(stage);
  }

  bool is_done(const State& state) const {
    const auto& last = state.done[has_weights() ? 2 : 1];
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
      if (last[chunk] < in_.micro_batches) return false;
    }
    return true;
  }

  std::int64_t in_flight(const State& state, std::size_t stage) const {
    std::int64_t count = 0;
    for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
      if (!is_of(chunk, stage)) continue;
      count += state.done[0][chunk] - state.done[has_weights() ? 2 : 1][chunk];
    }
    return count;
  }

  bool can_begin(const State& state, std::size_t phase, std::size_t chunk,
                 std::size_t stage) const {
    const int next = state.done[phase][chunk];
    if (next == in_.micro_batches) return false;
    if (phase == 0) {
      return (chunk == 0 || state.done[0][chunk - 1] > next) &&
             in_flight(state, stage) < in_.most_in_flight[stage];
    }
    if (state.done[phase - 1][chunk] <= next) return false;
    return phase == 2 || chunk + 1 == chunks() || state.done[1][chunk + 1] > next;
  }

  // What stage `stage` and those behind it do in the step that begins at `time`.
  void choose(State state, std::size_t stage, int time) {
    if (stage == in_.stages) return end_step(std::move(state), time);
    if (state.running[stage].left > 0) return choose(state, stage + 1, time);
    bool backward_waits = false;
    for (std::size_t phase = 0; phase < (has_weights() ? 3U : 2U); ++phase) {
      for (std::size_t chunk = 0; chunk < chunks(); ++chunk) {
        if (!is_of(chunk, stage) || !can_begin(state, phase, chunk, stage)) continue;
        // Nothing is longer than a unit: an action that fits now only does good. An F takes memory,
        // a first action begins the span.
        backward_waits = backward_waits || (is_unit() && phase > 0);
        State begun = state;
        begun.running[stage] = {static_cast<std::uint8_t>(phase), static_cast<std::uint8_t>(chunk),
                                static_cast<std::uint8_t>(in_.seconds[phase])};
        if (begun.began[stage] == 0) begun.began[stage] = static_cast<std::uint8_t>(time + 1);
        choose(begun, stage + 1, time);
      }
    }
    if (!backward_waits) choose(state, stage + 1, time);
  }
  bool is_unit() const { return *std::max_element(in_.seconds.begin(), in_.seconds.end()) == 1; }

  void end_step(State state, int time) {
    for (std::size_t stage = 0; stage < in_.stages; ++stage) {
      State::Running& running = state.running[stage];
      if (running.left == 0 || --running.left > 0) continue;
      ++state.done[running.phase][running.chunk];
      running = {};
    }
    if (state.began[0] == 0 || !can_end(state, time + 1)) return;
    if (seen_.insert(state).second) layer_.push_back(state);
  }

  // A stage has to do what is left of its own, and to wait for gradients that come from the last
  // chunk one chunk after the other.
  bool can_end(const State& state, int time) const {
    std::array<int, kMostStages> work = {};
    for (std::size_t stage = 0; stage < in_.stages; ++stage) {
      const State::Running& running = state.running[stage];
      if (running.left > 0) work[stage] = running.left - in_.seconds[running.phase];
    }
    int gradients = 0;  // seconds to the last gradient of the chunk
    for (std::size_t chunk = chunks(); chunk-- > 0;) {
      const auto stage = static_cast<std::size_t>(in_.stage_of_chunk[chunk]);
      int left = 0;
      for (std::size_t phase = 0; phase < 3; ++phase) {
        left = in_.micro_batches - state.done[phase][chunk];
        if (in_.seconds[phase] > 0) work[stage] += left * in_.seconds[phase];
      }
      left = in_.micro_batches - state.done[1][chunk];
      if (left == 0) continue;
      // That of a pass that goes on comes sooner by less than a pass.
      gradients = std::max(gradients + in_.seconds[1], left * in_.seconds[1]);
      const int sooner = in_.seconds[1] - 1;
      if (!in_time(state, stage, time + gradients - sooner + in_.seconds[2])) return false;
    }
    for (std::size_t stage = 0; stage < in_.stages; ++stage) {
      if (work[stage] > 0 && !in_time(state, stage, time + work[stage])) return false;
    }
    return true;
  }
  bool in_time(const State& state, std::size_t stage, int end) const {
    return state.began[stage] == 0 || end - (state.began[stage] - 1) <= most_span_;
  }

  const Instance& in_;
  int most_span_;
  std::vector<State> layer_;
  std::unordered_set<State, Hash> seen_;
};

// The shortest longest span of any schedule; 0 where none keeps to the memory.
int best_span(const Instance& instance) {
  const int work = instance.micro_batches *
                   (instance.seconds[0] + instance.seconds[1] + instance.seconds[2]) *
                   static_cast<int>(instance.stage_of_chunk.size() / instance.stages);
  for (int span = work; span <= work * static_cast<int>(instance.stages); ++span) {
    if (Search(instance, span).finds()) return span;
  }
  return 0;
}

int span_of(const PipelineSchedule& schedule, const std::array<int, 3>& seconds) {
  const auto [f, i, w] = seconds;
  ChunkCost cost;
  cost.steady = {1.0 * f, 1.0 * (i + w), 1.0 * i, 1.0 * w, 0};
  const auto times =
      simulate_schedule(schedule, std::vector<ChunkCost>(schedule.stage_of_chunk.size(), cost));
  if (!times.ok()) return 0;
  return static_cast<int>(*std::max_element(times->span.begin(), times->span.end()));
}

// All orders of a line in which a pass of a chunk stands behind what it needs of the same chunk.
std::vector<StepLine> orders_of(StepLine line) {
  std::vector<StepLine> orders;
  std::sort(line.begin(), line.end());
  do {
    bool sensible = true;
    for (std::size_t i = 0; i < line.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        sensible = sensible &&
                   (line[k].chunk != line[i].chunk || line[k].micro_batch != line[i].micro_batch ||
                    line[k].phase < line[i].phase);
      }
    }
    if (sensible) orders.push_back(line);
  } while (std::next_permutation(line.begin(), line.end()));
  return orders;
}

// The shortest longest span of each use of memory, of all orders of all lines.
using Spans = std::map<std::vector<std::int64_t>, int>;  // by in_flight().of_stage
void visit_orders(const std::vector<std::vector<StepLine>>& orders, std::size_t line,
                  PipelineSchedule& schedule, const std::array<int, 3>& seconds, Spans& spans) {
  if (line == orders.size()) {
    const int span = span_of(schedule, seconds);
    if (span == 0) return;  // a circle
    int& known = spans.emplace(in_flight(schedule).of_stage, span).first->second;
    known = std::min(known, span);
    return;
  }
  for (const StepLine& order : orders[line]) {
    schedule.lines[line] = order;
    visit_orders(orders, line + 1, schedule, seconds, spans);
  }
}

struct Subject {
  PipelineSchedule schedule;
  std::array<int, 3> seconds;
};
// A named schedule, with the times that its phases are for.
std::optional<Subject> subject_of(ScheduleKind kind, const PipelineShape& shape) {
  auto made = make_schedule(kind, shape);
  if (!made.ok()) return std::nullopt;
  bool apart = false;
  for (const StepAction& action : made->lines[0]) {
    apart = apart || action.phase == StepPhase::kWeightGradients;
  }
  return Subject{std::move(*made),
                 apart ? std::array<int, 3>{1, 1, 1} : std::array<int, 3>{1, 2, 0}};
}

Instance instance_of(const Subject& subject) {
  Instance instance;
  instance.stage_of_chunk = subject.schedule.stage_of_chunk;
  instance.stages = subject.schedule.lines.size();
  instance.micro_batches = static_cast<int>(subject.schedule.micro_batches);
  instance.seconds = subject.seconds;
  instance.most_in_flight = in_flight(subject.schedule).of_stage;
  return instance;
}

}  // namespace

TEST_CASE("the search finds what all orders have", "[pipeline]") {
  const bool other_times = GENERATE(false, true);
  using Kind = ScheduleKind;
  const std::vector<std::pair<Kind, PipelineShape>> cases = {
      {Kind::k1F1B, {1, 1, 2}}, {Kind::k1F1B, {2, 1, 1}}, {Kind::k1F1B, {2, 1, 2}},
      {Kind::k1F1B, {2, 1, 3}}, {Kind::k1F1B, {3, 1, 2}}, {Kind::kZbH1, {2, 1, 2}},
      {Kind::kZbH1, {3, 1, 2}}, {Kind::kZbV, {2, 2, 1}},  {Kind::kZbV, {3, 2, 1}}};
  for (const auto& [kind, shape] : cases) {
    INFO(name_of(kind) << " " << shape.stages << " " << shape.micro_batches);
    auto subject = subject_of(kind, shape);
    REQUIRE(subject);
    const bool is_whole = subject->seconds[2] == 0;
    if (other_times) {
      subject->seconds = is_whole ? std::array<int, 3>{2, 3, 0} : std::array<int, 3>{2, 1, 2};
    }
    std::vector<std::vector<StepLine>> orders;
    for (const StepLine& line : subject->schedule.lines) orders.push_back(orders_of(line));
    Spans spans;
    visit_orders(orders, 0, subject->schedule, subject->seconds, spans);
    REQUIRE_FALSE(spans.empty());
    // Every limit up to all micro-batches of all chunks, also those that nothing keeps to.
    const std::int64_t most = shape.micro_batches * shape.chunks_per_stage;
    Instance instance = instance_of(*subject);
    std::vector<std::int64_t>& limit = instance.most_in_flight;
    std::fill(limit.begin(), limit.end(), 1);
    for (std::size_t stage = 0; stage < limit.size();) {
      int expected = 0;
      for (const auto& [held, span] : spans) {
        const bool fits = std::equal(held.begin(), held.end(), limit.begin(),
                                     [](std::int64_t of, std::int64_t at) { return of <= at; });
        if (fits && (expected == 0 || span < expected)) expected = span;
      }
      CHECK(best_span(instance) == expected);
      for (stage = 0; stage < limit.size() && ++limit[stage] > most; ++stage) limit[stage] = 1;
    }
  }
}

TEST_CASE("named schedules beside the best of their memory", "[pipeline]") {
  for (const ScheduleKind kind : schedule_kinds()) {
    int as_fast = 0, all = 0;
    for (std::int64_t stages = 1; stages <= 3; ++stages) {
      for (std::int64_t micro_batches = 1; micro_batches <= 6; ++micro_batches) {
        for (std::int64_t chunks = 1; chunks <= 2; ++chunks) {
          const auto subject = subject_of(kind, {stages, chunks, micro_batches});
          if (!subject) continue;
          INFO(name_of(kind) << " " << stages << " x " << chunks << ", " << micro_batches);
          const int found = span_of(subject->schedule, subject->seconds);
          const int best = best_span(instance_of(*subject));
          REQUIRE(found >= best);
          ++all;
          as_fast += found == best;
          if (kind == ScheduleKind::kDualPipeV) {
            CHECK(found - best == stages - 1);
          } else if (kind != ScheduleKind::kZbV || micro_batches >= 2 * stages - 1) {
            CHECK(found == best);
          }
        }
      }
    }
    std::cout << name_of(kind) << ": as fast as any schedule in its memory in " << as_fast << " of "
              << all << " shapes\n";
  }
}

namespace {

// The best span where all stages hold that much more.
int changed_by(const Subject& subject, std::int64_t more) {
  Instance instance = instance_of(subject);
  for (std::int64_t& most : instance.most_in_flight) most += more;
  return best_span(instance);
}

}  // namespace

TEST_CASE("less memory is slower, more may be faster", "[pipeline]") {
  for (std::int64_t stages = 2; stages <= 3; ++stages) {
    for (std::int64_t micro_batches = stages; micro_batches <= 6; ++micro_batches) {
      INFO(stages << " " << micro_batches);
      const auto whole = subject_of(ScheduleKind::k1F1B, {stages, 1, micro_batches});
      const auto apart = subject_of(ScheduleKind::kZbH1, {stages, 1, micro_batches});
      // 1F1B: one less on any stage but the last, which holds one.
      for (std::size_t stage = 0; stage + 1 < static_cast<std::size_t>(stages); ++stage) {
        Instance instance = instance_of(*whole);
        --instance.most_in_flight[stage];
        CHECK(best_span(instance) > span_of(whole->schedule, whole->seconds));
      }
      CHECK(changed_by(*apart, -1) > span_of(apart->schedule, apart->seconds));
      // ZB-H2: with 2 S - 1 in flight nothing need wait.
      if (micro_batches > stages && stages == 2) {
        CHECK(changed_by(*apart, stages - 1) == micro_batches * 3);
      }
    }
  }
}

}  // namespace autopar::pipeline_exhaustive_test
