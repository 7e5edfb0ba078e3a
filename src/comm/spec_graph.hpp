// The graph in which reshards are shortest paths: states are the specs of one tensor, edges are
// single collectives. States and edges come into being when they are first asked for.
//
// A state tells apart two kinds of partial axis: those that were partial in the source and those
// that MakePartial made so. The latter stay as they are to the end, which keeps paths natural (no
// sum is invented only to be reduced again) and the answer to a spec the best of its states.
//
// Size for 3 axes, a tensor of rank 5 and no indivisible dimension: 642 states, some 12,000 edges.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "autopar/comm.hpp"

namespace autopar {

// What an edge does, without its reduction, which is that of the state it leaves.
struct Move {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::int16_t axis = -1;
  std::int16_t concat_axis = -1;
  std::int32_t sequence = 0;  // of mesh axes, see SpecGraph::sequence
};

struct Edge {
  Seconds seconds = 0;
  int to = 0;
  Move move;
};

class SpecGraph {
 public:
  SpecGraph(Shape shape, DType dtype, Mesh mesh, Cluster cluster);

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int state_count() const { return static_cast<int>(states_.size()); }

  // The state of a source: all partial axes are its own.
  int source_state(const Spec& spec);
  // The states in which a target is reached. Empty for none from any source.
  std::vector<int> target_states(const Spec& spec);
  // Whether a state with these partial axes and this reduction can come from that source.
  bool reachable(int source, int target) const;

  // The axes that MakePartial made partial in this state, as a mask.
  std::uint32_t made_of(int state) const { return states_[static_cast<std::size_t>(state)].made; }
  Spec spec_of(int state) const;
  Bytes bytes_of(int state) const { return states_[static_cast<std::size_t>(state)].bytes; }
  Collective collective_of(int from, const Move& move) const;

  // [first, last) into edge(); adds the edges of a state at its first call.
  std::pair<int, int> edges_of(int state);
  const Edge& edge(int index) const { return edges_[static_cast<std::size_t>(index)]; }

 private:
  // Two bytes per mesh axis (what it does, its position within a dimension), then the reduction.
  using Key = std::string;
  struct State {
    Key key;
    Bytes bytes = 0;          // local
    std::uint32_t split = 0;  // mesh axes that split a dimension
    std::uint32_t partial = 0;
    std::uint32_t made = 0;
    Reduction reduction = Reduction::kSum;
    int first_edge = -1;
    int last_edge = -1;
  };
  // A state taken apart.
  struct Layout {
    std::vector<std::vector<int>> dims;
    std::vector<std::int64_t> parts;  // per dimension
    std::vector<int> idle, partial, made;
  };

  Key key_of(const Spec& spec) const;
  int intern(const Key& key);
  void take_apart(const Key& key, Layout& layout) const;

  void add_gathers(int state, const Layout& layout);
  void add_exchanges(int state, const Layout& layout);
  void add_reductions(int state, const Layout& layout);
  void add_made_partials(int state, const Layout& layout);
  // Appends every ordered choice of `axes` to dimension `d`: ShardSlice or ReduceScatter.
  void add_appends(int state, const Layout& layout, CollectiveKind kind, int d);
  void append_more(int state, const std::vector<int>& axes, const Move& move, std::int64_t left,
                   std::uint32_t used, const Key& key, int position);
  void add_edge(int state, const Move& move, Key key);

  // Ordered lists of distinct mesh axes as a trie; 0 is the empty one.
  int longer(int sequence, int axis);
  struct Sequence {
    std::vector<int> axes;
    std::uint32_t mask = 0;
    std::vector<int> longer;  // by axis; 0: not yet made
  };

  Seconds price(CollectiveKind kind, int sequence, const State& from);

  Shape shape_;
  DType dtype_;
  Mesh mesh_;
  Cluster cluster_;
  int axes_ = 0;
  std::vector<State> states_;
  std::unordered_map<Key, int> state_of_key_;
  std::vector<Edge> edges_;
  std::vector<Sequence> sequences_;
  // Prices depend on the kind, the set of axes and the bytes, hence on the set that splits.
  std::unordered_map<std::uint64_t, Seconds> price_of_;
  Layout layout_;  // scratch of edges_of
};

}  // namespace autopar
