// A minimum cut between two ends of a network.
#pragma once

#include <cstdint>
#include <vector>

namespace autopar {

// Dinic's algorithm ("Algorithm for solution of a problem of maximum flow", 1970).
class MinimumCut {
 public:
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 61;

  explicit MinimumCut(int nodes) : first_(static_cast<std::size_t>(nodes), -1) {}
  void connect(int from, int to, std::int64_t capacity);
  // Which nodes can still send to `to` once no more flow fits: the far side of the minimum cut that
  // lies nearest to `to`.
  std::vector<bool> far_side(int from, int to);

 private:
  struct Arc {
    int to;
    int next;  // arc of the same node; -1: none. Arcs come in pairs, there and back.
    std::int64_t capacity;
  };
  bool find_levels(int from, int to);
  std::int64_t push(int from, int to);

  std::vector<int> first_;
  std::vector<Arc> arcs_;
  std::vector<int> level_, at_;
};

}  // namespace autopar
