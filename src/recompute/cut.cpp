#include "recompute/cut.hpp"

#include <algorithm>

namespace autopar {

void MinimumCut::connect(int from, int to, std::int64_t capacity) {
  const auto add = [this](int at, int other, std::int64_t room) {
    int& first = first_[static_cast<std::size_t>(at)];
    arcs_.push_back({other, first, room});
    first = static_cast<int>(arcs_.size()) - 1;
  };
  add(from, to, capacity);
  add(to, from, 0);
}

bool MinimumCut::find_levels(int from, int to) {
  level_.assign(first_.size(), -1);
  level_[static_cast<std::size_t>(from)] = 0;
  std::vector<int> reached = {from};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const auto node = static_cast<std::size_t>(reached[i]);
    for (int a = first_[node]; a >= 0; a = arcs_[static_cast<std::size_t>(a)].next) {
      const Arc& arc = arcs_[static_cast<std::size_t>(a)];
      if (arc.capacity == 0 || level_[static_cast<std::size_t>(arc.to)] >= 0) continue;
      level_[static_cast<std::size_t>(arc.to)] = level_[node] + 1;
      reached.push_back(arc.to);
    }
  }
  return level_[static_cast<std::size_t>(to)] >= 0;
}

// One path along rising levels, by a stack of arcs, since paths may be as long as the model.
std::int64_t MinimumCut::push(int from, int to) {
  std::vector<int> path;
  int node = from;
  while (node != to) {
    int& a = at_[static_cast<std::size_t>(node)];
    while (a >= 0) {
      const Arc& arc = arcs_[static_cast<std::size_t>(a)];
      const bool rises =
          level_[static_cast<std::size_t>(arc.to)] == level_[static_cast<std::size_t>(node)] + 1;
      if (arc.capacity > 0 && rises) break;
      a = arc.next;
    }
    if (a >= 0) {
      path.push_back(a);
      node = arcs_[static_cast<std::size_t>(a)].to;
      continue;
    }
    if (path.empty()) return 0;
    // A dead end: back, and past the arc that led here.
    node = arcs_[static_cast<std::size_t>(path.back() ^ 1)].to;
    at_[static_cast<std::size_t>(node)] = arcs_[static_cast<std::size_t>(path.back())].next;
    path.pop_back();
  }
  std::int64_t flow = kUnlimited;
  for (int a : path) flow = std::min(flow, arcs_[static_cast<std::size_t>(a)].capacity);
  for (int a : path) {
    arcs_[static_cast<std::size_t>(a)].capacity -= flow;
    arcs_[static_cast<std::size_t>(a ^ 1)].capacity += flow;
  }
  return flow;
}

std::vector<bool> MinimumCut::far_side(int from, int to) {
  while (find_levels(from, to)) {
    at_ = first_;
    while (push(from, to) > 0) {
    }
  }
  std::vector<bool> far(first_.size(), false);
  far[static_cast<std::size_t>(to)] = true;
  std::vector<int> reached = {to};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const auto node = static_cast<std::size_t>(reached[i]);
    for (int a = first_[node]; a >= 0; a = arcs_[static_cast<std::size_t>(a)].next) {
      const Arc& back = arcs_[static_cast<std::size_t>(a ^ 1)];  // from arc.to to here
      const int before = arcs_[static_cast<std::size_t>(a)].to;
      if (back.capacity == 0 || far[static_cast<std::size_t>(before)]) continue;
      far[static_cast<std::size_t>(before)] = true;
      reached.push_back(before);
    }
  }
  return far;
}

}  // namespace autopar
