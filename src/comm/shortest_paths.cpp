#include "comm/shortest_paths.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace autopar {

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
  labels_.resize(static_cast<std::size_t>(graph_->state_count()));
  labels_[static_cast<std::size_t>(source)].steps = 0;
  heap_.push_back({0, 0, 0, source});
}

int PathTree::reach(const int* first, const int* last) {
  int best = -1;
  for (const int* target = first; target != last; ++target) {
    if (!graph_->reachable(source_, *target)) continue;
    settle(*target);
    if (best < 0 || better(at(*target), at(best))) best = *target;
  }
  return best;
}

std::vector<int> PathTree::states_to(int state) const {
  std::vector<int> states = {state};
  while (states.back() != source_) states.push_back(at(states.back()).previous);
  std::reverse(states.begin(), states.end());
  return states;
}

void PathTree::settle(int target) {
  if (static_cast<std::size_t>(target) >= labels_.size()) {
    labels_.resize(static_cast<std::size_t>(graph_->state_count()));
  }
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
  labels_.resize(std::max(labels_.size(), static_cast<std::size_t>(graph_->state_count())));
  prices_->extend();
  const Label from = at(state);
  const Bytes input = state == source_ ? 0 : prices_->bytes_of(state);
  for (int e = first; e < last; ++e) {
    const Edge& edge = graph_->edge(e);
    Label& to = labels_[static_cast<std::size_t>(edge.to)];
    if (to.settled) continue;
    const Seconds seconds = from.seconds + prices_->seconds(edge.price);
    if ((to.steps >= 0 && seconds > to.seconds) || (graph_->made_of(edge.to) & ~wanted_)) continue;
    const Label next{seconds,
                     std::max(from.peak, input + prices_->bytes_of(edge.to)),
                     state,
                     e,
                     static_cast<std::int16_t>(from.steps + 1),
                     false};
    if (to.steps >= 0 && !better(next, to)) continue;
    const bool queued =
        to.steps == next.steps && to.seconds == next.seconds && to.peak == next.peak;
    to = next;
    if (queued) continue;
    heap_.push_back({next.seconds, next.peak, next.steps, edge.to});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

bool PathTree::better(const Label& a, const Label& b) const {
  if (a.seconds != b.seconds) return a.seconds < b.seconds;
  if (a.steps != b.steps) return a.steps < b.steps;
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
    const auto order = graph_->order(graph_->edge(x->edge).move, graph_->edge(y->edge).move);
    if (order != 0) result = order < 0;
    if (x->previous == y->previous) break;
    x = &at(x->previous);
    y = &at(y->previous);
  }
  return result;
}

PathPool::PathPool(Mesh mesh, Cluster cluster)
    : mesh_(std::move(mesh)), cluster_(std::move(cluster)) {
  std::set<std::int64_t> products = {1};
  for (const Axis& axis : mesh_.axes) {
    const std::vector<std::int64_t> before(products.begin(), products.end());
    for (std::int64_t product : before) products.insert(product * axis.size);
  }
  products_.assign(products.begin(), products.end());
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
  if (!graph) graph = std::make_unique<SpecGraph>(extents, mesh_);
  family.reset(new Family{graph.get(), PriceList(*graph, bytes, mesh_, cluster_), {}});
  return *family;
}

}  // namespace autopar
