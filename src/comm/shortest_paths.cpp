#include "comm/shortest_paths.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace autopar {

namespace {

constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

}  // namespace

void PriceList::extend() {
  while (static_cast<int>(seconds_.size()) < graph_.price_count()) {
    const PriceKey& price = graph_.price(static_cast<int>(seconds_.size()));
    seconds_.push_back(collective_seconds({price.kind, price.axes, -1, -1, Reduction::kSum},
                                          static_cast<double>(bytes_ / price.parts), mesh_,
                                          cluster_));
  }
}

PathTree::PathTree(SpecGraph& graph, PriceList& prices, int source, std::uint32_t wanted)
    : graph_(&graph), prices_(&prices), wanted_(wanted), source_(source) {
  extend();
  labels_[static_cast<std::size_t>(source)].steps = 0;
  seconds_[static_cast<std::size_t>(source)] = 0;
  heap_.push_back({0, source});
}

// States that the graph got since.
void PathTree::extend() {
  const auto known = static_cast<int>(labels_.size());
  labels_.resize(static_cast<std::size_t>(graph_->state_count()));
  seconds_.reserve(labels_.size());
  for (int state = known; state < graph_->state_count(); ++state) {
    seconds_.push_back((graph_->made_of(state) & ~wanted_) != 0 ? -kNever : kNever);
  }
}

int PathTree::reach(const int* first, const int* last) {
  int best = -1;
  for (const int* target = first; target != last; ++target) {
    if (!graph_->reachable(source_, *target)) continue;
    settle(*target);
    if (best < 0 || better(at(*target), seconds(*target), at(best), seconds(best))) best = *target;
  }
  return best;
}

std::vector<int> PathTree::states_to(int state) const {
  std::vector<int> states = {state};
  while (states.back() != source_) states.push_back(at(states.back()).previous);
  std::reverse(states.begin(), states.end());
  return states;
}

void PathTree::settle_next(int target) {
  extend();
  while (!at(target).settled) {
    AUTOPAR_CHECK(!heap_.empty(), "reshard: a target that should be reachable is not");
    std::pop_heap(heap_.begin(), heap_.end());
    const int state = heap_.back().state;
    heap_.pop_back();
    if (at(state).settled) continue;
    labels_[static_cast<std::size_t>(state)].settled = true;
    relax(state);
  }
}

void PathTree::relax(int state) {
  const auto [first, last] = graph_->edges_of(state);
  extend();
  prices_->extend();
  const Label from = at(state);
  const Seconds so_far = seconds(state);
  const Bytes input = state == source_ ? 0 : prices_->bytes_of(state);
  const Seconds* prices = prices_->data();
  for (int e = first; e < last; ++e) {
    const Hop& hop = graph_->hop(e);
    const Seconds reached = so_far + prices[hop.price];
    // Also where it is settled: every edge takes more than no time.
    if (reached > seconds_[static_cast<std::size_t>(hop.to)]) continue;
    offer(hop.to,
          {std::max(from.peak, input + prices_->bytes_of(hop.to)), state, e,
           static_cast<std::int16_t>(from.steps + 1),
           static_cast<std::int16_t>(from.gaps + graph_->has_gap(hop.to)), false},
          reached);
  }
}

// Takes a label that is no later than the one that is there, where it is better.
void PathTree::offer(int state, const Label& next, Seconds seconds) {
  Label& to = labels_[static_cast<std::size_t>(state)];
  Seconds& to_seconds = seconds_[static_cast<std::size_t>(state)];
  if (to.settled) return;
  if (to.steps >= 0 && !better(next, seconds, to, to_seconds)) return;
  const bool queued = to_seconds == seconds;
  to = next;
  to_seconds = seconds;
  if (queued) return;
  heap_.push_back({seconds, state});
  std::push_heap(heap_.begin(), heap_.end());
}

bool PathTree::better(const Label& a, Seconds a_seconds, const Label& b, Seconds b_seconds) const {
  if (a_seconds != b_seconds) return a_seconds < b_seconds;
  if (a.steps != b.steps) return a.steps < b.steps;
  if (a.gaps != b.gaps) return a.gaps < b.gaps;
  if (a.peak != b.peak) return a.peak < b.peak;
  return earlier(a, b);
}

// Between labels of equally many steps: whose first different collective comes first in the
// documented order. The paths are walked back to where they part.
bool PathTree::earlier(const Label& a, const Label& b) const {
  bool result = false;
  const Label* x = &a;
  const Label* y = &b;
  while (x->previous >= 0) {
    const auto order = graph_->order(graph_->move(x->edge), graph_->move(y->edge));
    if (order != 0) result = order < 0;
    if (x->previous == y->previous) break;
    x = &at(x->previous);
    y = &at(y->previous);
  }
  return result;
}

PathTree& PathPool::Family::tree(int source, std::uint32_t wanted) {
  const auto index = static_cast<std::size_t>(source);
  if (trees.size() <= index) trees.resize(static_cast<std::size_t>(graph->state_count()));
  for (const auto& tree : trees[index]) {
    if ((wanted & ~tree->wanted()) == 0) return *tree;
  }
  trees[index].push_back(std::make_unique<PathTree>(*graph, prices, source, wanted));
  return *trees[index].back();
}

PathPool::PathPool(Mesh mesh, Cluster cluster)
    : mesh_(std::move(mesh)), cluster_(std::move(cluster)) {
  std::set<std::int64_t> products = {1};
  for (const Axis& axis : mesh_.axes) {
    const std::vector<std::int64_t> before(products.begin(), products.end());
    for (std::int64_t product : before) products.insert(product * axis.size);
  }
  products_.assign(products.begin(), products.end());
  const bool small = mesh_.rank() <= kMostBlockAxes;
  const bool plain = std::none_of(mesh_.axes.begin(), mesh_.axes.end(),
                                  [](const Axis& axis) { return axis.size == 1; });
  blocks_ = small && plain ? Blocks::kSeveral : Blocks::kOne;
}

std::int64_t PathPool::extent_of(std::int64_t extent) const {
  std::int64_t multiple = 1;
  for (std::int64_t product : products_) {
    if (extent % product == 0) multiple = std::lcm(multiple, product);
  }
  return multiple;
}

PathPool::Family& PathPool::family(const Shape& extents, Bytes bytes) {
  auto& family = families_[{extents, bytes}];
  if (family) return *family;
  auto& graph = graphs_[extents];
  if (!graph) graph = std::make_unique<SpecGraph>(extents, mesh_, blocks_);
  family.reset(new Family{graph.get(), PriceList(*graph, bytes, mesh_, cluster_), {}});
  return *family;
}

}  // namespace autopar
