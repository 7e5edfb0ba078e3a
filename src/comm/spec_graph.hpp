// The graph in which reshards are shortest paths: states are the specs of one tensor, edges are
// single collectives. States and edges come into being when they are first asked for.
//
// A state tells apart two kinds of partial axis: those that were partial in the source and those
// that MakePartial made so. The latter stay as they are to the end, which keeps paths natural (no
// sum is invented only to be reduced again) and the answer to a spec the best of its states.
//
// Which states and edges there are depends only on what divides the dimensions, and what an edge
// costs only on its kind, its axes and the local bytes. So the graph knows no bytes and no
// dimensions that cannot be split, and is shared by all tensors whose dimensions divide alike:
// a Placing says which of the graph's dimensions a tensor's dimension is.
//
// Size for 3 axes and 5 dimensions that every axis divides: 642 states, some 12,000 edges.
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

// Where an edge leads and what it costs; what it does (its Move) is asked for less often.
struct Hop {
  int to = 0;
  int price = 0;  // which of the graph's prices
};

// Where the dimensions of a tensor are in the graph, and back. -1: a dimension that nothing splits.
struct Placing {
  std::vector<int> place;   // by dimension of the tensor
  std::vector<int> tensor;  // by dimension of the graph
};

// Whose seconds are to be found: a collective over `axes` of a tensor that is cut into `parts`.
struct PriceKey {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  AxisList axes;  // in mesh order
  std::int64_t parts = 1;
};

class SpecGraph {
 public:
  // `extents`: of the dimensions that something splits.
  SpecGraph(Shape extents, Mesh mesh);

  int state_count() const { return static_cast<int>(states_.size()); }
  int price_count() const { return static_cast<int>(prices_.size()); }
  const PriceKey& price(int index) const { return prices_[static_cast<std::size_t>(index)]; }

  // The state of a source: all partial axes are its own.
  int source_state(const Spec& spec, const Placing& placing);
  // Appends the states in which a target is reached: the axes that are partial may be the source's
  // or made. Those that cannot be reached from a source are among them.
  void add_target_states(const Spec& spec, const Placing& placing, std::vector<int>& states);
  // Whether a state with these partial axes and this reduction can come from that source.
  bool reachable(int source, int target) const {
    const std::uint32_t partial = partial_[static_cast<std::size_t>(target)];
    if (partial == 0) return true;
    const State& from = states_[static_cast<std::size_t>(source)];
    return (partial & ~partial_[static_cast<std::size_t>(source)]) == 0 &&
           states_[static_cast<std::size_t>(target)].reduction == from.reduction;
  }

  // Whether a state is reached from every source.
  bool is_reduced(int state) const { return partial_[static_cast<std::size_t>(state)] == 0; }

  // The axes that MakePartial made partial in this state, as a mask.
  std::uint32_t made_of(int state) const { return made_[static_cast<std::size_t>(state)]; }
  std::int64_t parts_of(int state) const { return states_[static_cast<std::size_t>(state)].parts; }
  Spec spec_of(int state, const Placing& placing) const;
  Collective collective_of(int from, const Move& move, const Placing& placing) const;
  // The documented order of collectives, with dimensions as the graph has them.
  std::strong_ordering order(const Move& a, const Move& b) const;

  // [first, last) into hop() and move(); adds the edges of a state at its first call.
  std::pair<int, int> edges_of(int state);
  const Hop& hop(int edge) const { return hops_[static_cast<std::size_t>(edge)]; }
  const Move& move(int edge) const { return moves_[static_cast<std::size_t>(edge)]; }

 private:
  // Two bytes per mesh axis (what it does, its position within a dimension), then the reduction.
  using Key = std::string;
  struct State {
    Key key;
    std::int64_t parts = 1;
    Reduction reduction = Reduction::kSum;
    int first_edge = -1;
    int last_edge = -1;
  };
  // A state taken apart.
  struct Layout {
    std::vector<AxisList> dims;
    std::vector<std::int64_t> parts;  // per dimension
    std::vector<int> idle, partial, made;
  };

  Key key_of(const Spec& spec, const Placing& placing) const;
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
    AxisList axes;
    std::uint32_t mask = 0;
    std::vector<int> longer;  // by axis; 0: not yet made
  };
  const Sequence& sequence(const Move& move) const {
    return sequences_[static_cast<std::size_t>(move.sequence)];
  }

  int price_of(const Move& move, std::int64_t parts);

  Shape extents_;
  Mesh mesh_;
  int axes_ = 0;
  std::vector<State> states_;
  // By state, as masks: asked for more often than the rest.
  std::vector<std::uint32_t> partial_, made_;
  std::unordered_map<Key, int> state_of_key_;
  std::vector<Hop> hops_;
  std::vector<Move> moves_;
  std::vector<Sequence> sequences_;
  std::vector<PriceKey> prices_;
  std::unordered_map<std::uint64_t, int> price_of_;
  Layout layout_;  // scratch of edges_of
};

}  // namespace autopar
