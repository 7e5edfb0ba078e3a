// Dijkstra over the SpecGraph, resumed when a further target of a known source is asked for.
// E. W. Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1, 1959.
// O(edges + states log states) per source.
#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "autopar/comm.hpp"
#include "comm/spec_graph.hpp"

namespace autopar {

namespace {

constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

std::uint32_t mask_of(const std::vector<int>& axes) {
  std::uint32_t mask = 0;
  for (int axis : axes) mask |= std::uint32_t{1} << axis;
  return mask;
}

// The shortest paths from one source, as far as they were needed. Only the axes of the mask
// `wanted` are made partial: no path to a target without them would gain by it.
class Tree {
 public:
  Tree(SpecGraph& graph, int source, std::uint32_t wanted) : graph_(&graph), wanted_(wanted) {
    start(source);
  }

  void start(int source) {
    source_ = source;
    labels_.assign(static_cast<std::size_t>(graph_->state_count()), Label{});
    heap_.clear();
    at(source).seconds = 0;
    heap_.push_back({0, 0, source});
  }

  // The best of the states in which a target is reached, -1 for none. The states must not be empty.
  int reach(const std::vector<int>& targets) {
    int best = -1;
    for (int target : targets) {
      if (!graph_->reachable(source_, target)) continue;
      settle(target);
      if (best < 0 || before(target, best)) best = target;
    }
    return best;
  }

  // Of settled states.
  Seconds seconds(int state) { return at(state).seconds; }
  Bytes peak_bytes(int state) { return at(state).peak; }
  std::vector<int> states_to(int state) {  // from the source
    std::vector<int> states = {state};
    while (states.back() != source_) states.push_back(at(states.back()).previous);
    std::reverse(states.begin(), states.end());
    return states;
  }
  const Edge& edge_to(int state) { return graph_->edge(at(state).edge); }

 private:
  struct Label {
    Seconds seconds = kNever;
    Bytes peak = 0;
    int steps = 0;
    int previous = -1;
    int edge = -1;
    bool settled = false;
  };
  // Ordered so that the heap gives the least first.
  struct Entry {
    Seconds seconds;
    int steps;
    int state;
    bool operator<(const Entry& other) const {
      return std::tie(seconds, steps, state) > std::tie(other.seconds, other.steps, other.state);
    }
  };

  Label& at(int state) {
    const auto index = static_cast<std::size_t>(state);
    if (index >= labels_.size()) labels_.resize(static_cast<std::size_t>(graph_->state_count()));
    return labels_[index];
  }

  void settle(int target) {
    while (!at(target).settled) {
      AUTOPAR_CHECK(!heap_.empty(), "reshard: a target that should be reachable is not");
      std::pop_heap(heap_.begin(), heap_.end());
      const int state = heap_.back().state;
      heap_.pop_back();
      if (at(state).settled) continue;
      at(state).settled = true;
      relax(state);
    }
  }

  void relax(int state) {
    const auto [first, last] = graph_->edges_of(state);
    at(graph_->state_count() - 1);  // room for the states that the edges made
    const Label from = at(state);
    const Bytes input = state == source_ ? 0 : graph_->bytes_of(state);
    for (int e = first; e < last; ++e) {
      const Edge& edge = graph_->edge(e);
      if (graph_->made_of(edge.to) & ~wanted_) continue;
      Label& to = labels_[static_cast<std::size_t>(edge.to)];
      const Label next{from.seconds + edge.seconds,
                       std::max(from.peak, input + graph_->bytes_of(edge.to)),
                       from.steps + 1,
                       state,
                       e,
                       false};
      if (to.settled || next.seconds > to.seconds) continue;
      if (next.seconds == to.seconds) {
        if (next.steps > to.steps) continue;
        if (next.steps == to.steps && !earlier(next, to)) continue;
      }
      const bool queued = next.seconds == to.seconds && next.steps == to.steps;
      to = next;
      if (queued) continue;
      heap_.push_back({next.seconds, next.steps, edge.to});
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  // Between labels of equal seconds and steps: whose collectives come first in the documented
  // order.
  bool earlier(const Label& a, const Label& b) { return moves_of(a) < moves_of(b); }

  using MoveKey = std::tuple<CollectiveKind, std::vector<int>, int, int>;
  std::vector<MoveKey> moves_of(Label label) {
    std::vector<MoveKey> moves;
    while (label.previous >= 0) {
      const Collective c = graph_->collective_of(label.previous, graph_->edge(label.edge).move);
      moves.emplace_back(c.kind, c.axes, c.axis, c.concat_axis);
      label = at(label.previous);
    }
    std::reverse(moves.begin(), moves.end());
    return moves;
  }

  bool before(int a, int b) {
    const Label& x = at(a);
    const Label& y = at(b);
    if (x.seconds != y.seconds) return x.seconds < y.seconds;
    if (x.steps != y.steps) return x.steps < y.steps;
    return earlier(x, y);
  }

  SpecGraph* graph_;
  std::uint32_t wanted_ = 0;
  int source_ = -1;
  std::vector<Label> labels_;
  std::vector<Entry> heap_;
};

}  // namespace

struct Resharder::State {
  SpecGraph graph;
  std::map<std::pair<int, std::uint32_t>, Tree> trees;  // by source state and wanted partial axes

  // The tree and in it the state in which the target is reached best, -1 for none.
  std::pair<Tree*, int> reach(const Spec& from, const Spec& to) {
    const int source = graph.source_state(from);
    const std::uint32_t wanted = mask_of(to.partial);
    Tree& tree = trees.try_emplace({source, wanted}, graph, source, wanted).first->second;
    return {&tree, tree.reach(graph.target_states(to))};
  }
};

Resharder::Resharder(Shape shape, DType dtype, Mesh mesh, Cluster cluster)
    : state_(
          new State{SpecGraph(std::move(shape), dtype, std::move(mesh), std::move(cluster)), {}}) {}
Resharder::~Resharder() = default;
Resharder::Resharder(Resharder&&) noexcept = default;
Resharder& Resharder::operator=(Resharder&&) noexcept = default;

const Shape& Resharder::shape() const { return state_->graph.shape(); }
DType Resharder::dtype() const { return state_->graph.dtype(); }

Seconds Resharder::seconds(const Spec& from, const Spec& to) {
  const auto [tree, target] = state_->reach(from, to);
  return target < 0 ? kNever : tree->seconds(target);
}

Reshard Resharder::path(const Spec& from, const Spec& to) {
  const auto [tree, target] = state_->reach(from, to);
  if (target < 0) return {{}, {}, kNever, 0};
  Reshard reshard;
  reshard.seconds = tree->seconds(target);
  reshard.peak_bytes = tree->peak_bytes(target);
  const std::vector<int> states = tree->states_to(target);
  for (std::size_t i = 1; i < states.size(); ++i) {
    const Move& move = tree->edge_to(states[i]).move;
    reshard.steps.push_back(state_->graph.collective_of(states[i - 1], move));
    reshard.specs.push_back(state_->graph.spec_of(states[i]));
  }
  return reshard;
}

ReshardTable Resharder::table(const std::vector<Spec>& from, const std::vector<Spec>& to) {
  std::vector<std::vector<int>> targets;
  std::uint32_t wanted = 0;
  for (const Spec& spec : to) {
    targets.push_back(state_->graph.target_states(spec));
    wanted |= mask_of(spec.partial);
  }
  ReshardTable table;
  if (from.empty()) return table;
  table.seconds.reserve(from.size() * to.size());
  table.peak_bytes.reserve(from.size() * to.size());
  Tree tree(state_->graph, state_->graph.source_state(from.front()), wanted);
  for (const Spec& spec : from) {
    tree.start(state_->graph.source_state(spec));
    for (const std::vector<int>& states : targets) {
      const int target = tree.reach(states);
      table.seconds.push_back(target < 0 ? kNever : tree.seconds(target));
      table.peak_bytes.push_back(target < 0 ? 0 : tree.peak_bytes(target));
    }
  }
  return table;
}

}  // namespace autopar
