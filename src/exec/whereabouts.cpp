#include "exec/whereabouts.hpp"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

namespace autopar {

namespace {

const Whereabouts& of(const std::vector<Whereabouts>& ranks, std::int64_t rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

std::uint64_t times_come(const Whereabouts& where, const RankGroup& group) {
  const auto found = where.meetings.find(group);
  return found == where.meetings.end() ? 0 : found->second;
}

bool is_message(const std::string& call) {
  return call.compare(0, 4, "Send") == 0 || call.compare(0, 4, "Recv") == 0;
}

// One meeting as its ranks see it: who has come, and who has not.
struct Attendance {
  std::vector<std::int64_t> present;
  std::vector<std::int64_t> absent;
  std::int64_t astray = -1;  // came with another call
};

Attendance attendance(const std::vector<Whereabouts>& ranks, std::int64_t waiting) {
  const Whereabouts& first = of(ranks, waiting);
  const std::uint64_t number = times_come(first, first.group);
  // The two ends of a message have calls of different kinds.
  const bool may_differ = is_message(first.waits_in);
  Attendance found;
  for (std::int64_t rank : first.group) {
    const Whereabouts& other = of(ranks, rank);
    const std::uint64_t come = times_come(other, first.group);
    (other.answers && come >= number ? found.present : found.absent).push_back(rank);
    const bool here =
        other.answers && come == number && !other.waits_in.empty() && other.group == first.group;
    if (here && !may_differ && other.waits_in != first.waits_in && found.astray < 0) {
      found.astray = rank;
    }
  }
  return found;
}

}  // namespace

std::string list_ranks(const std::vector<std::int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size() && i < kListedRanks; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kListedRanks) {
    text += " and " + std::to_string(ranks.size() - kListedRanks) + " more";
  }
  return text;
}

std::string state_text(std::int64_t rank, const Whereabouts& where) {
  const std::string name = "rank " + std::to_string(rank);
  if (!where.answers) {
    return name + (where.name.empty() ? "" : " (" + where.name + ")") +
           " does not answer: it is stopped, or its machine cannot be reached";
  }
  if (!where.waits_in.empty()) return name + " waits in " + where.waits_in;
  const std::string after =
      where.last_call.empty() ? "before its first collective" : "after " + where.last_call;
  return name + (where.finished ? " has finished " : " is busy with local ops ") + after;
}

std::string who_waits(const std::vector<Whereabouts>& ranks, std::int64_t rank) {
  std::string text;
  std::set<std::pair<RankGroup, std::uint64_t>> told;
  std::set<std::int64_t> seen;  // absent from some meeting
  std::vector<std::int64_t> absent;
  std::deque<std::int64_t> waiting{rank};
  while (!waiting.empty() && told.size() < kListedRanks) {
    const Whereabouts& where = of(ranks, waiting.front());
    const Attendance found = attendance(ranks, waiting.front());
    const std::int64_t first = waiting.front();
    waiting.pop_front();
    if (!told.insert({where.group, times_come(where, where.group)}).second) continue;
    text += (text.empty() ? "" : "; ") + where.waits_in + ": ";
    if (found.absent.empty()) {
      text += "all its ranks have come";
    } else {
      text += list_ranks(found.present) +
              (found.present.size() == 1 ? " waits for " : " wait for ") + list_ranks(found.absent);
    }
    if (found.astray >= 0) {
      text += "; but rank " + std::to_string(found.astray) + " calls " +
              of(ranks, found.astray).waits_in + " where rank " + std::to_string(first) +
              " calls " + where.waits_in;
    }
    for (std::int64_t other : found.absent) {
      if (!seen.insert(other).second) continue;
      absent.push_back(other);
      if (of(ranks, other).answers && !of(ranks, other).waits_in.empty()) waiting.push_back(other);
    }
  }
  std::sort(absent.begin(), absent.end());
  const auto is_told = [&](std::int64_t other) {
    const Whereabouts& where = of(ranks, other);
    return told.count({where.group, times_come(where, where.group)}) != 0;
  };
  absent.erase(std::remove_if(absent.begin(), absent.end(), is_told), absent.end());
  for (std::size_t i = 0; i < absent.size() && i < kListedRanks; ++i) {
    text += "; " + state_text(absent[i], of(ranks, absent[i]));
  }
  return text;
}

}  // namespace autopar
