// Shortest paths over a SpecGraph for tensors of one size.
// E. W. Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1, 1959.
// O(edges + states log states) per source, resumed when a further target is asked for.
#pragma once

#include <map>
#include <memory>

#include "comm/spec_graph.hpp"

namespace autopar {

// Seconds of the graph's prices for a tensor of so many bytes (all its parts together).
class PriceList {
 public:
  PriceList(const SpecGraph& graph, Bytes bytes, const Mesh& mesh, const Cluster& cluster)
      : graph_(graph), bytes_(bytes), mesh_(mesh), cluster_(cluster) {}

  // Valid specs split evenly, so the parts divide the bytes.
  Bytes bytes_of(int state) const { return bytes_ / graph_.parts_of(state); }
  Seconds seconds(int price) const { return seconds_[static_cast<std::size_t>(price)]; }
  const Seconds* data() const { return seconds_.data(); }
  // Prices that the graph got since.
  void extend();

 private:
  const SpecGraph& graph_;
  Bytes bytes_;
  const Mesh& mesh_;
  const Cluster& cluster_;
  std::vector<Seconds> seconds_;
};

// The shortest paths from one source, as far as they were needed. Only the axes of the mask
// `wanted` are made partial: no path to a target without them would gain by it. What a state's path
// is does not depend on how many others are wanted.
class PathTree {
 public:
  PathTree(SpecGraph& graph, PriceList& prices, int source, std::uint32_t wanted);

  std::uint32_t wanted() const { return wanted_; }
  // The best of the states in which a target is reached, -1 for none.
  int reach(const int* first, const int* last);
  // Precondition: the state can be reached.
  void settle(int target) {
    const auto index = static_cast<std::size_t>(target);
    if (index >= labels_.size() || !labels_[index].settled) settle_next(target);
  }

  // Of settled states.
  Seconds seconds(int state) const { return seconds_[static_cast<std::size_t>(state)]; }
  Bytes peak_bytes(int state) const { return at(state).peak; }
  std::vector<int> states_to(int state) const;  // from the source
  const Move& move_to(int state) const { return graph_->move(at(state).edge); }

 private:
  struct Label {
    Bytes peak = 0;
    std::int32_t previous = -1;
    std::int32_t edge = -1;
    std::int16_t steps = -1;  // -1: not reached
    std::int16_t gaps = 0;    // steps to layouts with several blocks of a dimension
    bool settled = false;
  };
  // Ordered so that the heap gives the least first. The order of those that are reached in equally
  // many seconds does not matter: every edge takes time, so none of them is before another.
  struct Entry {
    Seconds seconds;
    std::int32_t state;
    bool operator<(const Entry& other) const { return seconds > other.seconds; }
  };

  const Label& at(int state) const { return labels_[static_cast<std::size_t>(state)]; }
  void extend();
  void settle_next(int target);
  void relax(int state);
  void offer(int state, const Label& next, Seconds seconds);
  bool better(const Label& a, Seconds a_seconds, const Label& b, Seconds b_seconds) const;
  bool earlier(const Label& a, const Label& b) const;

  SpecGraph* graph_;
  PriceList* prices_;
  std::uint32_t wanted_ = 0;
  int source_ = -1;
  std::vector<Label> labels_;
  // By state; infinite: not reached, -infinite: never to be reached, since it has axes made partial
  // that are not wanted. So one comparison tells most edges that lead nowhere.
  std::vector<Seconds> seconds_;
  std::vector<Entry> heap_;
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
    std::vector<std::vector<std::unique_ptr<PathTree>>> trees;  // by source state

    // A tree in which at least the axes `wanted` are made partial.
    PathTree& tree(int source, std::uint32_t wanted);
  };
  // `extents`: as extent_of gives them, without ones, in falling order.
  Family& family(const Shape& extents, Bytes bytes);

  // Stands for all extents that the same products of axis sizes divide: their least common
  // multiple. 1: nothing splits it.
  std::int64_t extent_of(std::int64_t extent) const;
  bool splits() const { return products_.size() > 1; }  // false: one device

 private:
  Mesh mesh_;
  Cluster cluster_;
  std::vector<std::int64_t> products_;  // of sets of axes, ascending
  Blocks blocks_ = Blocks::kOne;
  std::map<Shape, std::unique_ptr<SpecGraph>> graphs_;
  std::map<std::pair<Shape, Bytes>, std::unique_ptr<Family>> families_;
};

}  // namespace autopar
