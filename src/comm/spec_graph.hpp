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
// Size for 3 axes and 5 dimensions that every axis divides: 642 states, some 12,000 edges. With
// several blocks per dimension (see Blocks) some eight times as many.
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "comm/steps.hpp"

namespace autopar {

// What a device may hold of a dimension.
enum class Blocks : std::uint8_t {
  // One block: the axes of a dimension are a stack, put on and taken off at its minor end.
  kOne,
  // Several blocks at equal distances: the index along a dimension is a number in mixed radix, an
  // axis splits by some of its digits, and those before it may be split by none. An axis can leave
  // from under others, and come to where the target has it at once. Digits are left out only where
  // axes in mesh order (or others of their sizes) could be: other orders are rare, and would double
  // the graph.
  kSeveral,
};

// What an edge does, without its reduction, which is that of the state it leaves.
struct Move {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::int16_t axis = -1;
  std::int16_t concat_axis = -1;
  std::int16_t place = 0;     // where the axes come to in `axis`; orders moves of several blocks
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
  SpecGraph(Shape extents, Mesh mesh, Blocks blocks);

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
           states_[static_cast<std::size_t>(target)].key.reduction == from.key.reduction;
  }

  // Whether a state is reached from every source.
  bool is_reduced(int state) const { return partial_[static_cast<std::size_t>(state)] == 0; }

  // The axes that MakePartial made partial in this state, as a mask.
  std::uint32_t made_of(int state) const { return made_[static_cast<std::size_t>(state)]; }
  // Whether a device holds several blocks of a dimension.
  bool has_gap(int state) const { return gap_[static_cast<std::size_t>(state)] != 0; }
  std::int64_t parts_of(int state) const { return states_[static_cast<std::size_t>(state)].parts; }
  DigitSpec spec_of(int state, const Placing& placing) const;
  const AxisList& axes_of(const Move& move) const { return sequence(move).axes; }
  // The documented order of collectives, with dimensions as the graph has them.
  std::strong_ordering order(const Move& a, const Move& b) const;

  // [first, last) into hops() and move(); adds the edges of a state at its first call.
  std::pair<int, int> edges_of(int state);
  const Hop* hops() const { return hops_.data(); }
  const Move& move(int edge) const { return moves_[static_cast<std::size_t>(edge)]; }

  // Bytes that came to be kept since it was last asked.
  double take_bytes();

 private:
  // What makes a state. A place is, of one block, how many axes are before; of several, which of
  // the products of axis sizes is the number of parts that the digits before make.
  struct Key {
    struct Role {
      std::uint8_t what = 0;   // an axis does: idle, partial, made partial, or which dimension
      std::uint8_t place = 0;  // within that dimension
      bool operator==(const Role&) const = default;
    };
    std::array<Role, kMaxMeshAxes> roles = {};
    Reduction reduction = Reduction::kSum;
    int what(int axis) const { return roles[static_cast<std::size_t>(axis)].what; }
    int place(int axis) const { return roles[static_cast<std::size_t>(axis)].place; }
    void set(int axis, int what, int place = 0) {
      roles[static_cast<std::size_t>(axis)] = {static_cast<std::uint8_t>(what),
                                               static_cast<std::uint8_t>(place)};
    }
    bool operator==(const Key&) const = default;
  };
  struct State {
    Key key;
    std::int64_t parts = 1;
    int first_edge = -1;
    int last_edge = -1;
  };
  // A state taken apart.
  struct Layout {
    std::vector<AxisList> dims;  // by place
    std::vector<std::vector<std::int64_t>>
        offsets;                      // beside `dims`: the parts of all digits before
    std::vector<std::int64_t> parts;  // per dimension, of all its axes
    std::vector<int> idle, partial, made;
  };
  // Axes of one dimension that one collective can take away.
  struct Run {
    int sequence = 0;
    std::int64_t parts = 1;
    AxisList axes;
  };

  Key key_of(const Spec& spec, const Placing& placing) const;
  int intern(const Key& key);
  std::size_t slot_of(const Key& key) const;
  void take_apart(const Key& key, Layout& layout) const;

  void add_gathers(int state, const Layout& layout);
  void add_exchanges(int state, const Layout& layout);
  void add_reductions(int state, const Layout& layout);
  void add_made_partials(int state, const Layout& layout);
  // Appends every ordered choice of `axes` to dimension `d`: ShardSlice or ReduceScatter.
  void add_appends(int state, const Layout& layout, CollectiveKind kind, int d);
  void append_more(int state, const Layout& layout, const std::vector<int>& axes, const Move& move,
                   std::int64_t start, std::int64_t parts, const Key& key);
  void add_edge(int state, const Move& move, Key key);

  void add_runs(const Layout& layout, std::size_t d, std::vector<Run>& runs);
  // Parts before the places of a dimension at which axes can be put.
  std::span<const std::int64_t> places(const Layout& layout, std::size_t d) const;
  // Whether axes that make so many parts can be put there.
  bool is_free(const Layout& layout, std::size_t d, std::int64_t offset, std::int64_t parts) const;
  bool has_gap(const Key& key) const;
  bool in_mesh_order(const Key& key) const;
  int place_of(std::size_t before, std::int64_t offset) const;
  void extend(Run& run, int axis);

  double counted_bytes_ = 0;
  std::int64_t size_of(int axis) const { return mesh_.axes[static_cast<std::size_t>(axis)].size; }

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
  Blocks blocks_ = Blocks::kOne;
  int axes_ = 0;
  std::vector<std::int64_t> products_;      // of sets of axes, ascending
  std::vector<std::vector<char>> ordered_;  // by axis and place: axes before it could be there
  std::vector<State> states_;
  // By state, as masks: asked for more often than the rest.
  std::vector<std::uint32_t> partial_, made_;
  std::vector<char> gap_;
  std::vector<std::int32_t> state_at_;  // open addressing by key; -1: free
  std::vector<Hop> hops_;
  std::vector<Move> moves_;
  std::vector<Sequence> sequences_;
  std::vector<PriceKey> prices_;
  std::unordered_map<std::uint64_t, int> price_of_;
  // Scratch of edges_of.
  Layout layout_;
  std::vector<Run> runs_;
};

}  // namespace autopar
