// Shortest paths over a SpecGraph for tensors of one size.
// E. W. Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1, 1959.
// O(edges + states log states) per source, the logarithm being that of how many states are reached
// in nearly the same time; resumed when a further target is asked for.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "autopar/allowance.hpp"
#include "comm/settle_queue.hpp"
#include "comm/spec_graph.hpp"

namespace autopar {

// To where no path leads.
inline constexpr Seconds kUnreachable = std::numeric_limits<Seconds>::infinity();

// What a graph's prices and states are for a tensor of so many bytes (all its parts together).
class PriceList {
 public:
  PriceList(const SpecGraph& graph, Bytes bytes, const Mesh& mesh, const Cluster& cluster)
      : graph_(graph), bytes_(bytes), mesh_(mesh), cluster_(cluster) {}

  const Seconds* seconds() const { return seconds_.data(); }        // by price
  const Bytes* local_bytes() const { return local_bytes_.data(); }  // by state
  // By price, as weights have it; good until the graph grows.
  const double* weighted(const ReshardWeights& weights);
  // What the graph got since.
  void extend();

 private:
  const SpecGraph& graph_;
  Bytes bytes_;
  const Mesh& mesh_;
  const Cluster& cluster_;
  double weighted_price(std::size_t price, const ReshardWeights& weights) const;

  std::vector<Seconds> seconds_, saved_, host_;
  std::vector<Bytes> local_bytes_;
  std::vector<std::pair<ReshardWeights, std::vector<double>>> weighted_;
};

// The shortest paths from one source, as far as they were needed.
class PathTree {
 public:
  // The queue is empty between calls, so all trees can have the same. Only the axes `wanted` (a
  // mask) are made partial: no path to a target without them would gain by it.
  PathTree(SpecGraph& graph, PriceList& prices, SettleQueue& queue, int source,
           std::uint32_t wanted);

  // What a state's path is does not depend on how many others are wanted, so there may be more.
  void want(std::uint32_t axes);

  // Settles those of the states that can be reached, or all: some tables have most of them.
  void settle(const std::vector<int>& states);
  void settle_all();
  // The best of the states in which a target is reached, -1 for none.
  int reach(const int* first, const int* last) const;

  // Of settled states.
  Seconds seconds(int state) const { return seconds_[at(state)]; }
  Bytes peak_bytes(int state) const { return peaks_[at(state)]; }
  std::vector<int> states_to(int state) const;  // from the source
  // All steps of its path, each at what `by_price` says (PriceList::weighted).
  double weighted(int state, const double* by_price) const;
  const Move& move_to(int state) const { return graph_->move(links_[at(state)].edge); }

  // Edges that were looked at, and bytes that came to be kept, since it was last asked.
  double take_work() { return std::exchange(work_, 0); }
  double take_bytes();

 private:
  // The last edge of a path, and the state that it leaves.
  struct Link {
    std::int32_t previous;
    std::int32_t edge;
  };
  // Of a settled path. `steps`: one more than there are, 0: not settled; `gaps`: the steps to
  // layouts with several blocks of a dimension.
  struct Length {
    std::int16_t steps;
    std::int16_t gaps;
    auto operator<=>(const Length&) const = default;
  };

  static std::size_t at(int state) { return static_cast<std::size_t>(state); }
  bool is_settled(int state) const { return lengths_[at(state)].steps > 0; }
  void extend();
  void fill_queue();
  void settle_next();
  void finish(int state);
  void relax(int state);
  void offer(int state, Seconds seconds, const Link& last);
  bool better(int state, const Link& a, const Link& b) const;
  bool earlier(Link a, Link b) const;
  Bytes peak_over(int state, const Link& last) const;

  SpecGraph* graph_;
  PriceList* prices_;
  SettleQueue* queue_;
  std::uint32_t wanted_ = 0;
  int source_ = -1;
  bool all_settled_ = false;
  double work_ = 0;
  double counted_bytes_ = 0;
  // All by state. Seconds are infinite where it is not reached, -infinite where it is never to be
  // reached, since it has axes made partial that are not wanted: so one comparison tells most edges
  // that lead nowhere. The links of settled states are final, their lengths and peaks are known.
  std::vector<Seconds> seconds_;
  std::vector<Link> links_;
  std::vector<Length> lengths_;
  std::vector<Bytes> peaks_;
};

// With more axes the graph of several blocks would grow beyond what reshards are worth.
inline constexpr int kMostBlockAxes = 4;

// Graphs, prices and trees of all tensors on one mesh.
class PathPool {
 public:
  PathPool(Mesh mesh, Cluster cluster);

  // All tensors of one size whose dimensions divide alike.
  struct Family {
    SpecGraph* graph;
    PriceList prices;
    SettleQueue* queue;
    std::vector<std::unique_ptr<PathTree>> trees;  // by source state; null: not yet asked for

    // A tree in which at least the axes `wanted` are made partial.
    PathTree& tree(int source, std::uint32_t wanted);
  };
  // `extents`: as extent_of gives them, without ones, in falling order.
  Family& family(const Shape& extents, Bytes bytes);

  // Stands for all extents that the same products of axis sizes divide: their least common
  // multiple. 1: nothing splits it.
  std::int64_t extent_of(std::int64_t extent) const;
  bool splits() const { return products_.size() > 1; }  // false: one device

  Allowance* allowance = nullptr;  // of bulk answers; null: as much as it takes

 private:
  Mesh mesh_;
  Cluster cluster_;
  std::vector<std::int64_t> products_;  // of sets of axes, ascending
  Blocks blocks_ = Blocks::kOne;
  SettleQueue queue_;
  std::map<Shape, std::unique_ptr<SpecGraph>> graphs_;
  std::map<std::pair<Shape, Bytes>, std::unique_ptr<Family>> families_;
};

}  // namespace autopar
