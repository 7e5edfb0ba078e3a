#include "cli/pipeline_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "planning/pipelines/chunk_cost.hpp"

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;
using Stream = StepEvent::Stream;

constexpr int kActions = 0, kCompute = 1, kCollectives = 2, kMessages = kCollectives + kLinks;

// To nanoseconds.
double microseconds(Seconds seconds) {
  return static_cast<double>(std::llround(seconds * 1e9)) / 1e3;
}

Json complete(std::int64_t stage, int row, Seconds begin, Seconds end, const char* category,
              const std::string& name) {
  return {{"ph", "X"},
          {"pid", stage},
          {"tid", row},
          {"ts", microseconds(begin)},
          {"dur", microseconds(end) - microseconds(begin)},
          {"cat", category},
          {"name", name}};
}

// What a chunk's own timeline has of one action.
struct Drawn {
  StepEvent event;
  Seconds begin = 0;  // after that of the action
  Seconds seconds = 0;
};

// The time since an action began; of a part of a backward pass or of an update, which the other
// part interrupts, without that one.
class PartOfPass {
 public:
  explicit PartOfPass(Seconds begin) : begin_(begin) {}

  // What compute does next, until then.
  void add(Seconds end, bool is_own) {
    const Seconds before = stretches_.empty() ? begin_ : stretches_.back().end;
    const Seconds own = is_own ? std::max(0.0, end - before) : 0;
    stretches_.push_back({std::max(before, end), own, seconds() + own});
  }
  Seconds seconds() const { return stretches_.empty() ? 0 : stretches_.back().until; }
  // How much of it is over; less than 0 before its first.
  Seconds until(Seconds time) const {
    const auto next =
        std::upper_bound(stretches_.begin(), stretches_.end(), time,
                         [](Seconds at, const Stretch& stretch) { return at < stretch.end; });
    if (next == stretches_.end()) {
      return seconds() + time - (stretches_.empty() ? begin_ : stretches_.back().end);
    }
    const Seconds before = next == stretches_.begin() ? begin_ : std::prev(next)->end;
    if (time < before) return time - begin_;
    return next->until - (next->own > 0 ? next->end - time : 0);
  }

 private:
  struct Stretch {
    Seconds end = 0, own = 0, until = 0;  // of what is its own, also of those before
  };
  Seconds begin_;
  std::vector<Stretch> stretches_;
};

class ChunkEvents {
 public:
  ChunkEvents(const ChunkPlan& chunk, const std::string& updates)
      : chunk_(chunk),
        graph_(chunk.planned->request->graph),
        cost_(chunk.strategy_cost()),
        mesh_(chunk.planned->outcome.strategy.mesh),
        events_(step_events(graph_, cost_, mesh_, chunk.planned->request->cluster, updates)),
        ends_(phase_ends(graph_, cost_, events_)),
        reduces_(reduce_part(graph_, chunk.reduce_ops)) {}

  const Graph& graph() const { return graph_; }
  const StrategyCost& cost() const { return cost_; }
  const Mesh& mesh() const { return mesh_; }

  OpId op_of(const StepEvent& event) const { return when_of(cost_.terms[event.term], graph_); }

  // In so many seconds, which are those of the schedule.
  std::vector<Drawn> of(const StepAction& action, Seconds seconds) const {
    const bool is_part = action.phase == StepPhase::kInputGradients ||
                         action.phase == StepPhase::kWeightGradients ||
                         (!is_pass(action.phase) && !chunk_.reduce_ops.empty());
    const PartOfPass part = is_part ? part_of(action) : PartOfPass(begin_of(action, seconds));
    const double scale = is_part && part.seconds() > 0 ? seconds / part.seconds() : 1;
    std::vector<Drawn> found;
    for (const StepEvent& event : events_) {
      if (event.stream == Stream::kHost || event.seconds <= 0 || !belongs(event, action)) continue;
      const Seconds begin = part.until(event.begin);
      const Seconds end = part.until(event.begin + event.seconds);
      found.push_back({event, scale * begin, scale * (end - begin)});
    }
    return found;
  }

 private:
  // When the action begins in the chunk's own timeline, as chunk_cost() has it: what is fetched
  // ahead stands before it.
  Seconds begin_of(const StepAction& action, Seconds seconds) const {
    if (!is_pass(action.phase)) return ends_.end();
    const auto pass = static_cast<std::size_t>(pass_of(action.micro_batch));
    const Seconds backward = ends_.forward_end(pass);
    if (action.phase != StepPhase::kForward) return backward;
    // The first one is shorter by what was fetched while the stage waited for it.
    return action.micro_batch == 0 ? backward - seconds : ends_.forward_begin(pass);
  }

  PartOfPass part_of(const StepAction& action) const {
    const StepAction whole{action.chunk, StepPhase::kBackward, action.micro_batch};
    PartOfPass part(begin_of(is_pass(action.phase) ? whole : action, 0));
    for (const StepEvent& event : events_) {
      if (event.stream != Stream::kCompute) continue;
      if (!(is_pass(action.phase) ? belongs(event, whole) : is_of_update(event))) continue;
      part.add(event.begin + event.seconds, belongs(event, action));
    }
    return part;
  }

  bool is_of_update(const StepEvent& event) const {
    const OpId op = op_of_part(cost_.terms[event.term], graph_);
    return op.valid() && graph_.op(op).phase == Phase::kUpdate;
  }

  bool belongs(const StepEvent& event, const StepAction& action) const {
    const OpId op = op_of_part(cost_.terms[event.term], graph_);
    const Phase phase = op.valid() ? graph_.op(op).phase : Phase::kForward;
    if (phase == Phase::kUpdate) {
      return action.phase == (reduces_[op.index()] != 0 ? StepPhase::kReduce : StepPhase::kUpdate);
    }
    if (!is_pass(action.phase) || event.pass != pass_of(action.micro_batch)) return false;
    if (phase == Phase::kForward) return action.phase == StepPhase::kForward;
    if (action.phase == StepPhase::kBackward) return true;
    const bool is_weights = !chunk_.weight_ops.empty() && chunk_.weight_ops[op.index()] != 0;
    return action.phase == (is_weights ? StepPhase::kWeightGradients : StepPhase::kInputGradients);
  }

  // Those between the first and the last are alike.
  std::int64_t pass_of(std::int64_t micro_batch) const {
    if (micro_batch == 0 || micro_batch + 1 == graph_.passes) return micro_batch;
    return 1;
  }

  const ChunkPlan& chunk_;
  const Graph& graph_;
  const StrategyCost& cost_;
  const Mesh& mesh_;
  const std::vector<StepEvent> events_;
  const PhaseEnds ends_;
  const std::vector<char> reduces_;  // by op
};

class PipelineTimeline {
 public:
  PipelineTimeline(const PipelinePlan& plan, const std::string& updates) : plan_(plan) {
    for (const ChunkPlan& chunk : plan.chunks) chunks_.emplace_back(chunk, updates);
  }

  std::string text() {
    for (std::size_t l = 0; l < plan_.schedule.lines.size(); ++l) add_rows(l);
    for (std::size_t l = 0; l < plan_.schedule.lines.size(); ++l) {
      for (std::size_t i = 0; i < plan_.schedule.lines[l].size(); ++i) {
        add_action(l, plan_.schedule.lines[l][i], plan_.times.actions[l][i]);
      }
    }
    return "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"format\": \"autopar-timeline\", "
           "\"version\": \"1\"},\n\"traceEvents\": [\n" +
           text_ + "\n]}\n";
  }

 private:
  void line(const Json& event) {
    text_ +=
        (text_.empty() ? "" : ",\n") + event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void name_row(std::size_t stage, int row, const std::string& name) {
    line({{"ph", "M"},
          {"pid", stage},
          {"tid", row},
          {"name", "thread_name"},
          {"args", {{"name", name}}}});
    line({{"ph", "M"},
          {"pid", stage},
          {"tid", row},
          {"name", "thread_sort_index"},
          {"args", {{"sort_index", row}}}});
  }

  void add_rows(std::size_t stage) {
    const std::int64_t size = plan_.stage.device_count();
    const std::int64_t first = static_cast<std::int64_t>(stage) * size;
    const std::string ranks =
        size == 1 ? "rank " + std::to_string(first)
                  : "ranks " + std::to_string(first) + " to " + std::to_string(first + size - 1);
    line({{"ph", "M"},
          {"pid", stage},
          {"tid", 0},
          {"name", "process_name"},
          {"args", {{"name", "stage " + std::to_string(stage) + ": " + ranks + " (predicted)"}}}});
    line({{"ph", "M"},
          {"pid", stage},
          {"tid", 0},
          {"name", "process_sort_index"},
          {"args", {{"sort_index", stage}}}});
    name_row(stage, kActions, "actions");
    name_row(stage, kCompute, "compute");
    for (int link = 0; link < kLinks; ++link) {
      const auto tier = static_cast<std::size_t>(link);
      if (tier >= plan_.stage.tiers.size() || plan_.stage.tiers[tier].size == 1) continue;
      name_row(stage, kCollectives + link, "collectives over " + plan_.stage.tiers[tier].name);
    }
    for (const std::int64_t to : receivers_of(stage)) {
      name_row(stage, kMessages + static_cast<int>(to), "messages to stage " + std::to_string(to));
    }
  }

  std::vector<std::int64_t> receivers_of(std::size_t stage) const {
    std::vector<std::int64_t> found;
    for (const StepAction& action : plan_.schedule.lines[stage]) {
      for (const Message& message : messages_of(action)) {
        const bool is_known = std::find(found.begin(), found.end(), message.to) != found.end();
        if (message.seconds > 0 && !is_known) found.push_back(message.to);
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  struct Message {
    std::int64_t to = 0;  // stage
    const char* what = "activation";
    Seconds seconds = 0;
  };
  // What an action sends, in the order in which simulate_schedule() has it.
  std::vector<Message> messages_of(const StepAction& action) const {
    const auto& stages = plan_.schedule.stage_of_chunk;
    const ChunkCost& cost = plan_.chunks[static_cast<std::size_t>(action.chunk)].cost;
    const bool makes_activation = action.phase == StepPhase::kForward;
    const bool makes_gradient =
        action.phase == StepPhase::kBackward || action.phase == StepPhase::kInputGradients;
    std::vector<Message> messages;
    if (action.phase == StepPhase::kReduce) {
      std::set<std::int64_t> known;
      for (const FurtherMessage& message : cost.reduced.value_or(std::vector<FurtherMessage>())) {
        const std::int64_t to = stages[static_cast<std::size_t>(message.to)];
        if (known.insert(to).second) messages.push_back({to, "sums", message.seconds});
      }
      return messages;
    }
    const auto add = [&](std::int64_t to, Seconds seconds) {
      const bool forward = to > action.chunk;
      if (to < 0 || to >= static_cast<std::int64_t>(stages.size())) return;
      if (!(forward ? makes_activation : makes_gradient)) return;
      const char* what = forward ? "activation" : "gradient";
      messages.push_back({stages[static_cast<std::size_t>(to)], what, seconds});
    };
    add(action.chunk + 1, cost.send_forward);
    add(action.chunk - 1, cost.send_backward);
    for (const FurtherMessage& message : cost.further) add(message.to, message.seconds);
    return messages;
  }

  void add_action(std::size_t stage, const StepAction& action, const ActionTime& time) {
    const auto pid = static_cast<std::int64_t>(stage);
    Json json = complete(pid, kActions, time.start, time.end, "action", to_text(action));
    json["args"] = {{"chunk", action.chunk}, {"phase", name_of(action.phase)}};
    if (action.micro_batch >= 0) json["args"]["micro_batch"] = action.micro_batch;
    line(json);
    const bool is_shown =
        action.micro_batch < 2 || action.micro_batch + 1 == plan_.schedule.micro_batches;
    if (is_shown) add_ops(pid, action, time);
    for (const Message& message : messages_of(action)) add_message(stage, action, time, message);
  }

  void add_ops(std::int64_t stage, const StepAction& action, const ActionTime& time) {
    const ChunkEvents& chunk = chunks_[static_cast<std::size_t>(action.chunk)];
    for (const Drawn& drawn : chunk.of(action, time.end - time.start)) {
      const CostTerm& term = chunk.cost().terms[drawn.event.term];
      const Op& op = chunk.graph().op(chunk.op_of(drawn.event));
      const bool is_compute = drawn.event.stream == Stream::kCompute;
      const int row = is_compute ? kCompute : kCollectives + drawn.event.link;
      std::string name = op.name;
      Json args = {{"op_type", op.type}, {"action", to_text(action)}};
      if (term.kind == CostTerm::Kind::kCollective) {
        name = autopar::name_of(term.collective.kind);
        if (term.value.valid()) name += " " + chunk.graph().value(term.value).name;
        args["collective"] = to_text(term.collective, chunk.mesh());
      }
      Json json =
          complete(stage, row, time.start + drawn.begin, time.start + drawn.begin + drawn.seconds,
                   is_compute ? "op" : "collective", name);
      json["args"] = std::move(args);
      line(json);
    }
  }

  // As simulate_schedule() has them: in the order of the line, one at a time.
  void add_message(std::size_t stage, const StepAction& action, const ActionTime& time,
                   const Message& message) {
    const auto& [to, what, seconds] = message;
    Seconds& link = links_[{stage, to}];
    const Seconds begin = std::max(link, time.end);
    link = begin + seconds;
    if (seconds <= 0) return;
    Json json = complete(static_cast<std::int64_t>(stage), kMessages + static_cast<int>(to), begin,
                         link, "message", what + (" of " + to_text(action)));
    json["args"] = {{"to_stage", to}};
    if (action.micro_batch >= 0) json["args"]["micro_batch"] = action.micro_batch;
    line(json);
  }

  const PipelinePlan& plan_;
  std::vector<ChunkEvents> chunks_;
  std::map<std::pair<std::size_t, std::int64_t>, Seconds> links_;  // until when they are busy
  std::string text_;
};

}  // namespace

std::string pipeline_timeline_json(const PipelinePlan& plan, const std::string& updates) {
  return PipelineTimeline(plan, updates).text();
}

}  // namespace autopar::cli
