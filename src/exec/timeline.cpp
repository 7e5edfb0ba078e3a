#include "exec/timeline.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>

namespace autopar {

double total_bytes(CollectiveKind kind, double input_bytes, std::int64_t group_size) {
  const bool gathers = kind == CollectiveKind::kAllGather;
  return gathers ? input_bytes * static_cast<double>(group_size) : input_bytes;
}

double bus_factor(CollectiveKind kind, std::int64_t group_size) {
  const auto n = static_cast<double>(group_size);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return (n - 1) / n;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kPermute:
    case CollectiveKind::kShardSlice:
    case CollectiveKind::kMakePartial:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      return 1;
  }
  return 1;
}

Spread spread_of(std::vector<Seconds> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  Spread spread;
  spread.minimum = seconds.front();
  const std::size_t middle = seconds.size() / 2;
  spread.median =
      seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
  for (Seconds s : seconds) spread.mean += s;
  spread.mean /= static_cast<double>(seconds.size());
  return spread;
}

Seconds steady_seconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

void nest(std::vector<RunEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](const RunEvent& a, const RunEvent& b) {
    return std::pair(a.begin, -a.seconds) < std::pair(b.begin, -b.seconds);
  });
  std::vector<Seconds> open;  // ends of the events round the next one, the outermost first
  for (RunEvent& event : events) {
    Seconds end = event.begin + event.seconds;
    while (!open.empty() && open.back() - event.begin <= std::min(kClockSlack, end - open.back())) {
      event.begin = std::max(event.begin, open.back());
      open.pop_back();
    }
    if (!open.empty()) end = std::min(end, open.back());
    event.seconds = std::max(0.0, end - event.begin);
    open.push_back(end);
  }
}

namespace {

// What the calls of one meeting share: run, step, call, seq, the group's first rank; messages: run,
// the message's number among those between the two ranks, and these.
using Meeting = std::tuple<int, int, int, bool, std::int64_t, std::int64_t, std::int64_t>;

// By event; nothing where it does not communicate. Precondition: of one rank in its order.
std::vector<std::optional<Meeting>> meetings_of(const std::vector<RunEvent>& events) {
  std::map<std::tuple<int, bool, int, int>, std::int64_t> messages;  // met so far
  std::vector<std::optional<Meeting>> meetings;
  for (const RunEvent& e : events) {
    meetings.emplace_back();
    if (e.seq < 0) continue;
    if (e.peer < 0) {
      meetings.back() = Meeting(e.run, e.step, e.call, false, e.seq, e.first, 0);
      continue;
    }
    const bool sends = e.first == e.rank;
    const int from = sends ? e.rank : e.peer;
    const int to = sends ? e.peer : e.rank;
    const std::int64_t number = messages[{e.run, sends, from, to}]++;
    meetings.back() = Meeting(e.run, 0, 0, true, number, from, to);
  }
  return meetings;
}

}  // namespace

void find_waiting(std::vector<RunEvent>& events) {
  struct Group {
    std::int64_t came = 0;
    Seconds last = 0;
  };
  const auto meetings = meetings_of(events);
  std::map<Meeting, Group> groups;
  for (std::size_t e = 0; e < events.size(); ++e) {
    if (!meetings[e]) continue;
    Group& group = groups[*meetings[e]];
    group.last = group.came++ == 0 ? events[e].begin : std::max(group.last, events[e].begin);
  }
  for (std::size_t e = 0; e < events.size(); ++e) {
    if (!meetings[e]) continue;
    const Group& group = groups.at(*meetings[e]);
    if (group.came != events[e].group_size) continue;
    events[e].waiting = std::clamp(group.last - events[e].begin, 0.0, events[e].seconds);
  }
}

}  // namespace autopar
