#include "cli/timeline_json.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;

// In microseconds, to nanoseconds: as fine as the clocks are.
double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }
std::int64_t nanoseconds(Seconds seconds) { return std::llround(seconds * 1e9); }

std::string line_of(const Json& event) {
  return event.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json metadata(int rank, const char* what, Json args) {
  return {{"ph", "M"}, {"pid", rank}, {"tid", 0}, {"name", what}, {"args", std::move(args)}};
}

Json complete(const RunEvent& event, const char* category, const std::string& name) {
  const std::int64_t begin = nanoseconds(event.begin);
  return {{"ph", "X"},
          {"pid", event.rank},
          {"tid", 0},
          {"ts", microseconds(begin)},
          {"dur", microseconds(nanoseconds(event.begin + event.seconds) - begin)},
          {"cat", category},
          {"name", name}};
}

// A part of a collective, from `begin` to `end` after its beginning.
Json part_of(const RunEvent& event, const char* name, Seconds begin, Seconds end) {
  RunEvent part = event;
  part.begin += begin;
  part.seconds = end - begin;
  return complete(part, "collective", name);
}

void add_collective(const RunEvent& event, std::string& text) {
  Json json = complete(event, "collective", event.name);
  Json args = {{"op_type", event.kind},
               {"run", event.run},
               {"step", event.step},
               {"seq", event.seq},
               {"group_size", event.group_size},
               {"bytes", event.total_bytes},
               {"algorithm_bandwidth_bytes_per_s", event.algorithm_bandwidth()},
               {"bus_bandwidth_bytes_per_s", event.bus_bandwidth()}};
  const bool known = event.waiting >= 0;
  if (known) {
    // Without the waiting, which says nothing about the links.
    const Seconds moving = event.seconds - event.waiting;
    args["waiting_us"] = microseconds(nanoseconds(event.waiting));
    args["moving_us"] = microseconds(nanoseconds(moving));
    if (moving > 0) {
      args["moving_bus_bandwidth_bytes_per_s"] = event.bus_factor * event.total_bytes / moving;
    }
  }
  json["args"] = std::move(args);
  text += ",\n" + line_of(json);
  if (!known) return;
  text += ",\n" + line_of(part_of(event, "waiting", 0, event.waiting));
  text += ",\n" + line_of(part_of(event, "moving", event.waiting, event.seconds));
}

void add_event(const RunEvent& event, std::string& text) {
  if (event.seq >= 0) return add_collective(event, text);
  Json json = complete(event, event.kind.empty() ? "run" : "op", event.name);
  json["args"] = {{"run", event.run}};
  if (!event.kind.empty()) {
    json["args"] = {{"op_type", event.kind}, {"run", event.run}, {"step", event.step}};
  }
  text += ",\n" + line_of(json);
}

// An arrow for each message, from the end of the Send to the end of its Recv: the k-th message from
// one rank to another is the k-th received.
void add_messages(const RunReport& report, std::string& text) {
  struct Ends {
    std::vector<const RunEvent*> sent, received;
  };
  std::map<std::tuple<std::int64_t, int>, Ends> messages;
  for (const RunEvent& event : report.events) {
    if (event.kind == "Send") messages[{event.rank, event.peer}].sent.push_back(&event);
    if (event.kind == "Recv") messages[{event.peer, event.rank}].received.push_back(&event);
  }
  int id = 0;
  for (const auto& [ranks, ends] : messages) {
    for (std::size_t k = 0; k < std::min(ends.sent.size(), ends.received.size()); ++k, ++id) {
      for (const RunEvent* event : {ends.sent[k], ends.received[k]}) {
        const bool start = event == ends.sent[k];
        Json json = {{"ph", start ? "s" : "f"},
                     {"pid", event->rank},
                     {"tid", 0},
                     {"ts", microseconds(nanoseconds(event->begin + event->seconds / 2))},
                     {"id", id},
                     {"cat", "message"},
                     {"name", "message"}};
        if (!start) json["bp"] = "e";
        text += ",\n" + line_of(json);
      }
    }
  }
}

}  // namespace

std::string timeline_json(const RunReport& report, const std::string& ranks_are) {
  std::string text;
  for (int rank = 0; rank < report.ranks; ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    text += (rank == 0 ? "" : ",\n") +
            line_of(metadata(rank, "process_name", {{"name", name + " (" + ranks_are + ")"}})) +
            ",\n" + line_of(metadata(rank, "process_sort_index", {{"sort_index", rank}})) + ",\n" +
            line_of(metadata(rank, "thread_name", {{"name", "ops and collectives"}}));
  }
  for (const RunEvent& event : report.events) add_event(event, text);
  add_messages(report, text);
  return "{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"format\": \"autopar-timeline\", "
         "\"version\": \"1\"},\n\"traceEvents\": [\n" +
         text + "\n]}\n";
}

}  // namespace autopar::cli
