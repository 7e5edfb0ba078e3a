#include "comm/shortest_paths.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <set>

namespace autopar {

namespace {

// Sums of the same seconds in other orders are as long: an AllReduce, which takes twice what its
// two halves take, behind another step.
constexpr double kRounding = 1e-12;

bool shorter(Seconds a, Seconds b) { return a < (1 - kRounding) * b; }

}  // namespace

void PriceList::extend() {
  while (static_cast<int>(seconds_.size()) < graph_.price_count()) {
    const PriceKey& price = graph_.price(static_cast<int>(seconds_.size()));
    const Collective collective{price.kind, price.axes, -1, -1, Reduction::kSum};
    const auto bytes = static_cast<double>(bytes_ / price.parts);
    const Seconds seconds = collective_seconds(collective, bytes, mesh_, cluster_);
    seconds_.push_back(seconds);
    saved_.push_back(0);
    host_.push_back(cluster_.profile.waited_host_s(axes_size(mesh_, price.axes)));
    if (cluster_.profile.bucket_bytes <= 0 || !communicates(price.kind)) continue;
    const Seconds latency = collective_seconds(collective, 1, mesh_, cluster_);
    saved_.back() =
        saved_in_bucket(cluster_.profile, seconds, latency, sent_bytes(collective, bytes, mesh_));
  }
  // Valid specs split evenly, so the parts divide the bytes.
  for (int state = static_cast<int>(local_bytes_.size()); state < graph_.state_count(); ++state) {
    local_bytes_.push_back(bytes_ / graph_.parts_of(state));
  }
}

const double* PriceList::weighted(const ReshardWeights& weights) {
  auto known = std::find_if(weighted_.begin(), weighted_.end(),
                            [&](const auto& its) { return its.first == weights; });
  if (known == weighted_.end()) known = weighted_.insert(known, {weights, {}});
  std::vector<double>& by_price = known->second;
  for (std::size_t p = by_price.size(); p < seconds_.size(); ++p) {
    by_price.push_back(weighted_price(p, weights));
  }
  return by_price.data();
}

double PriceList::weighted_price(std::size_t p, const ReshardWeights& weights) const {
  const PriceKey& key = graph_.price(static_cast<int>(p));
  if (!communicates(key.kind)) return seconds_[p] * weights.local + weights.issuing;
  const bool is_sum = key.kind == CollectiveKind::kAllReduce;
  const auto& by_link = is_sum ? weights.sums : weights.others;
  const auto& more = is_sum ? weights.more_sums : weights.more_others;
  const Seconds saved = weights.in_buckets ? saved_[p] : 0;
  const auto link = static_cast<std::size_t>(link_of(key.axes, mesh_));
  const double waited = is_sum ? weights.waited_sums : weights.waited_others;
  return (seconds_[p] - saved) * by_link[link] + more[link] + weights.issuing + waited * host_[p];
}

PathTree::PathTree(SpecGraph& graph, PriceList& prices, SettleQueue& queue, int source,
                   std::uint32_t wanted)
    : graph_(&graph), prices_(&prices), queue_(&queue), wanted_(wanted), source_(source) {
  extend();
  seconds_[at(source)] = 0;
  links_[at(source)] = {-1, -1};
}

// States and prices that the graph got since.
void PathTree::extend() {
  prices_->extend();
  const auto known = static_cast<int>(seconds_.size());
  const auto count = at(graph_->state_count());
  if (at(known) == count) return;
  seconds_.resize(count, kUnreachable);
  links_.resize(count);
  lengths_.resize(count);
  peaks_.resize(count);
  for (int state = known; state < graph_->state_count(); ++state) {
    if ((graph_->made_of(state) & ~wanted_) != 0) seconds_[at(state)] = -kUnreachable;
  }
}

// From axes made partial no path leads back, so what is settled stays, but leads to more.
void PathTree::want(std::uint32_t axes) {
  if ((axes & ~wanted_) == 0) return;
  wanted_ |= axes;
  all_settled_ = false;
  for (int state = 0; state < static_cast<int>(seconds_.size()); ++state) {
    if (seconds_[at(state)] == -kUnreachable && (graph_->made_of(state) & ~wanted_) == 0) {
      seconds_[at(state)] = kUnreachable;
    }
  }
  const auto known = static_cast<int>(seconds_.size());
  for (int state = 0; state < known; ++state) {
    if (is_settled(state)) relax(state);
  }
  queue_->clear();
}

void PathTree::settle(const std::vector<int>& states) {
  extend();
  bool filled = false;
  for (int target : states) {
    if (is_settled(target) || !graph_->reachable(source_, target)) continue;
    if (!filled) fill_queue();
    filled = true;
    while (!is_settled(target)) {
      AUTOPAR_CHECK(!queue_->empty(), "reshard: a target that should be reachable is not");
      settle_next();
    }
  }
  if (filled) queue_->clear();
}

void PathTree::settle_all() {
  extend();
  if (all_settled_) return;
  fill_queue();
  while (!queue_->empty()) settle_next();
  queue_->clear();
  all_settled_ = true;
}

// With all states that are reached and not settled.
void PathTree::fill_queue() {
  for (int state = 0; state < static_cast<int>(seconds_.size()); ++state) {
    const Seconds seconds = seconds_[at(state)];
    if (seconds < kUnreachable && seconds >= 0 && !is_settled(state)) queue_->push(seconds, state);
  }
}

void PathTree::settle_next() {
  const int state = queue_->pop();
  if (is_settled(state)) return;
  finish(state);
  relax(state);
}

void PathTree::finish(int state) {
  const Link& last = links_[at(state)];
  if (last.previous < 0) {
    lengths_[at(state)] = {1, 0};
    return;
  }
  const Length& before = lengths_[at(last.previous)];
  lengths_[at(state)] = {static_cast<std::int16_t>(before.steps + 1),
                         static_cast<std::int16_t>(before.gaps + graph_->has_gap(state))};
  peaks_[at(state)] = peak_over(state, last);
}

double PathTree::take_bytes() {
  const double bytes = static_cast<double>(seconds_.size()) *
                       (sizeof(Seconds) + sizeof(Link) + sizeof(Length) + sizeof(Bytes));
  return bytes - std::exchange(counted_bytes_, bytes) + graph_->take_bytes();
}

void PathTree::relax(int state) {
  const auto [first, last] = graph_->edges_of(state);
  work_ += last - first;
  extend();
  const Hop* hops = graph_->hops();
  const Seconds* prices = prices_->seconds();
  const Seconds* seconds = seconds_.data();
  const Seconds so_far = seconds_[at(state)];
  // Which edges may be of use, without a branch: it could not be foreseen.
  constexpr int kAtOnce = 32;
  std::array<int, kAtOnce> useful;
  for (int e = first; e < last;) {
    std::size_t count = 0;
    for (const int end = std::min(e + kAtOnce, last); e < end; ++e) {
      useful[count] = e;
      // Also where it is settled: every edge takes more than no time.
      const Seconds sum = (1 - kRounding) * (so_far + prices[hops[e].price]);
      count += sum <= seconds[at(hops[e].to)] ? 1 : 0;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Hop& hop = hops[useful[i]];
      offer(hop.to, so_far + prices[hop.price], {state, useful[i]});
    }
  }
}

// Takes a path that is no longer than the one that is there, where it is better.
void PathTree::offer(int state, Seconds seconds, const Link& last) {
  const Seconds now = seconds_[at(state)];
  const bool is_shorter = now == kUnreachable || shorter(seconds, now);
  if (!is_shorter) {
    const bool is_tie = !shorter(now, seconds) && !is_settled(state);
    if (!is_tie || !better(state, last, links_[at(state)])) return;
  }
  links_[at(state)] = last;
  seconds_[at(state)] = seconds;
  if (seconds < now) queue_->push(seconds, state);
}

Bytes PathTree::peak_over(int state, const Link& last) const {
  const Bytes* bytes = prices_->local_bytes();
  const Bytes input = last.previous == source_ ? 0 : bytes[last.previous];
  return std::max(peaks_[at(last.previous)], input + bytes[state]);
}

// Of two paths to a state that take as long.
bool PathTree::better(int state, const Link& a, const Link& b) const {
  const auto order = lengths_[at(a.previous)] <=> lengths_[at(b.previous)];
  if (order != 0) return order < 0;
  const Bytes a_peak = peak_over(state, a), b_peak = peak_over(state, b);
  if (a_peak != b_peak) return a_peak < b_peak;
  return earlier(a, b);
}

// Between paths of equally many steps: whose first different collective comes first in the
// documented order. The paths are walked back to where they part.
bool PathTree::earlier(Link a, Link b) const {
  bool result = false;
  while (a.previous >= 0) {
    const auto order = graph_->order(graph_->move(a.edge), graph_->move(b.edge));
    if (order != 0) result = order < 0;
    if (a.previous == b.previous) break;
    a = links_[at(a.previous)];
    b = links_[at(b.previous)];
  }
  return result;
}

int PathTree::reach(const int* first, const int* last) const {
  const auto better_state = [&](int a, int b) {
    if (shorter(seconds(a), seconds(b))) return true;
    if (shorter(seconds(b), seconds(a))) return false;
    const auto order = lengths_[at(a)] <=> lengths_[at(b)];
    if (order != 0) return order < 0;
    if (peak_bytes(a) != peak_bytes(b)) return peak_bytes(a) < peak_bytes(b);
    return earlier(links_[at(a)], links_[at(b)]);
  };
  int best = -1;
  for (const int* target = first; target != last; ++target) {
    if (!graph_->reachable(source_, *target)) continue;
    if (best < 0 || better_state(*target, best)) best = *target;
  }
  return best;
}

std::vector<int> PathTree::states_to(int state) const {
  std::vector<int> states = {state};
  while (states.back() != source_) states.push_back(links_[at(states.back())].previous);
  std::reverse(states.begin(), states.end());
  return states;
}

double PathTree::weighted(int state, const double* by_price) const {
  double sum = 0;
  const Hop* hops = graph_->hops();
  while (state != source_) {
    const Link& last = links_[at(state)];
    sum += by_price[hops[last.edge].price];
    state = last.previous;
  }
  return sum;
}

PathTree& PathPool::Family::tree(int source, std::uint32_t wanted) {
  const auto index = static_cast<std::size_t>(source);
  if (trees.size() <= index) trees.resize(static_cast<std::size_t>(graph->state_count()));
  auto& tree = trees[index];
  if (!tree) tree = std::make_unique<PathTree>(*graph, prices, *queue, source, wanted);
  tree->want(wanted);
  return *tree;
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
  family.reset(new Family{graph.get(), PriceList(*graph, bytes, mesh_, cluster_), &queue_, {}});
  return *family;
}

}  // namespace autopar
