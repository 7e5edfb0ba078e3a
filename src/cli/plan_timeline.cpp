#include "cli/plan_timeline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;
using Stream = StepEvent::Stream;

// Micro-batches that are shown where there are more than that many: the others are like them.
constexpr std::int64_t kMostPasses = 4;

// To nanoseconds.
double microseconds(Seconds seconds) {
  return static_cast<double>(std::llround(seconds * 1e9)) / 1e3;
}

std::string line_of(const Json& event) {
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json metadata(int row, const char* what, Json args) {
  return {{"ph", "M"}, {"pid", 0}, {"tid", row}, {"name", what}, {"args", std::move(args)}};
}

// Compute, the links, and the host.
constexpr int kRows = kLinks + 2;
int row_of(const StepEvent& event) {
  if (event.stream == Stream::kCompute) return 0;
  return event.stream == Stream::kLink ? 1 + event.link : kRows - 1;
}
// Empty: the cluster has no such row.
std::string name_of_row(int row, const Cluster& cluster) {
  if (row == 0) return "compute";
  if (row == kRows - 1) return cluster.profile.host_s > 0 ? "host" : "";
  const auto tier = static_cast<std::size_t>(row - 1);
  return tier < cluster.tiers.size() ? "collectives over " + cluster.tiers[tier].name : "";
}

class PlanTimeline {
 public:
  PlanTimeline(const SearchRequest& request, const SearchOutcome& outcome)
      : graph_(request.graph), outcome_(outcome), updates_(request.updates), request_(request) {}

  std::string text() {
    const std::vector<StepEvent> events =
        step_events(graph_, outcome_.cost, outcome_.strategy.mesh, request_.cluster, updates_);
    begin();
    for (const StepEvent& event : events) {
      if (is_shown(event.pass)) add(event);
    }
    add_left_out(events);
    return "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"format\": \"autopar-timeline\", "
           "\"version\": \"1\"},\n\"traceEvents\": [\n" +
           text_ + "\n]}\n";
  }

 private:
  // The first two and the last, of interleaved ones all that go with these.
  bool is_shown(std::int64_t pass) const {
    return shows_all() || pass < 2 * graph_.copies || pass + graph_.copies >= graph_.passes;
  }
  bool shows_all() const { return graph_.passes <= kMostPasses * graph_.copies; }

  void line(const Json& event) { text_ += (text_.empty() ? "" : ",\n") + line_of(event); }

  void begin() {
    line(metadata(0, "process_name", {{"name", "rank 0 (predicted)"}}));
    for (int row = 0; row < kRows; ++row) {
      const std::string name = name_of_row(row, request_.cluster);
      if (name.empty()) continue;
      line(metadata(row, "thread_name", {{"name", name}}));
      line(metadata(row, "thread_sort_index", {{"sort_index", row}}));
    }
  }

  void add(const StepEvent& event) {
    if (event.seconds <= 0) return;
    const CostTerm& term = outcome_.cost.terms[event.term];
    const OpId when = when_of(term, graph_);
    const Op& op = graph_.op(when);
    const bool sends =
        term.kind == CostTerm::Kind::kCollective && communicates(term.collective.kind);
    Json args = {{"op_type", op.type}, {"phase", autopar::name_of(op.phase)}};
    std::string name = op.name;
    if (term.kind == CostTerm::Kind::kCollective) {
      args["collective"] = to_text(term.collective, outcome_.strategy.mesh);
      name = autopar::name_of(term.collective.kind);
      if (term.value.valid()) name += " " + graph_.value(term.value).name;
      if (term.op.valid()) args["for"] = op.name;
    }
    if (sends)
      args["sent_bytes"] =
          term.sent_bytes / static_cast<double>(std::max<std::int64_t>(1, term.times));
    if (graph_.has_passes() && event.pass < graph_.passes) args["micro_batch"] = event.pass;
    Json json = {{"ph", "X"},
                 {"pid", 0},
                 {"tid", row_of(event)},
                 {"ts", microseconds(event.begin)},
                 {"dur", microseconds(event.begin + event.seconds) - microseconds(event.begin)},
                 {"cat", sends ? "collective" : "op"},
                 {"name", name}};
    json["args"] = std::move(args);
    line(json);
  }

  // In place of the micro-batches between.
  void add_left_out(const std::vector<StepEvent>& events) {
    if (shows_all()) return;
    std::array<Seconds, kRows> first, last{};
    first.fill(kInfinity);
    for (const StepEvent& event : events) {
      if (is_shown(event.pass)) continue;
      const auto row = static_cast<std::size_t>(row_of(event));
      first[row] = std::min(first[row], event.begin);
      last[row] = std::max(last[row], event.begin + event.seconds);
    }
    for (std::size_t row = 0; row < first.size(); ++row) {
      if (first[row] >= last[row]) continue;
      line({{"ph", "X"},
            {"pid", 0},
            {"tid", static_cast<int>(row)},
            {"ts", microseconds(first[row])},
            {"dur", microseconds(last[row]) - microseconds(first[row])},
            {"cat", "micro-batches"},
            {"name", "micro-batches " + std::to_string(2 * graph_.copies) + " to " +
                         std::to_string(graph_.passes - graph_.copies - 1)}});
    }
  }

  const Graph& graph_;
  const SearchOutcome& outcome_;
  const std::string& updates_;
  const SearchRequest& request_;
  std::string text_;
};

}  // namespace

std::string plan_timeline_json(const SearchRequest& request, const SearchOutcome& outcome) {
  return PlanTimeline(request, outcome).text();
}

}  // namespace autopar::cli
