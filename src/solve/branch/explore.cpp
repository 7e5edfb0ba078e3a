#include "solve/branch/explore.hpp"

#include <algorithm>
#include <utility>

#include "solve/bound/settle.hpp"
#include "solve/bound/subgradient.hpp"
#include "solve/branch/merge.hpp"
#include "solve/effort.hpp"
#include "solve/network/reduce.hpp"

namespace autopar::solver {
namespace {

using namespace effort::explore;

// A labelling of the network's remaining nodes as one of its origin.
Found as_found(const Network& net, const Incumbent& best, double bound) {
  Found found = {.value = best.value, .bound = bound};
  if (best.value < kInfinity) found.labels = lift(net, best.labels);
  return found;
}

// What the dual left: as the network's own terms where these are many.
std::unique_ptr<Network> left_of(const Dual& dual, Budget& budget) {
  const double entries = dual.surviving_entries();
  const bool plain = entries > kDenseEntries;
  budget.add(plain ? dual.work_per_pass() : 4 * entries);
  return dual.survivors(plain);
}

// Of a child network, whose origin is `net`.
Found explore_child(const Network& net, Network& child, double cutoff, Budget& budget) {
  Found found = explore(child, cutoff, budget);
  if (found.value < kInfinity) found.labels = in_parent(net, child, found.labels);
  return found;
}

// What the dual left, if that is much less, or else with some of its nodes merged; null where only
// branching helps.
std::unique_ptr<Network> smaller_network(const Dual& dual, double cutoff, Budget& budget) {
  const bool shrunk = dual.labels_alive() < 0.8 * dual.labels_total();
  if (!shrunk && dual.surviving_entries() > kDenseEntries) return nullptr;
  std::unique_ptr<Network> child = left_of(dual, budget);
  if (shrunk) return child;
  const bool merged = merge_nodes(*child, cutoff);
  budget.add(child->algebra.work());
  return merged ? std::move(child) : nullptr;
}

// The node at which most of the gap lies, and its label in the present labelling.
int branching_node(const Network& net, const Dual& dual, const std::vector<int>& labels) {
  const Vector excess = dual.excess(labels);
  int best = -1;
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (net.nodes[n].gone) continue;
    if (best >= 0 && !(excess[n] > excess[at(best)])) continue;
    if (dual.left(static_cast<int>(n)).size() > 1) best = static_cast<int>(n);
  }
  return best;
}

// Labels of node n in the order in which they are split: by what they add to the bound; where that
// says little, since their memory's price makes up for their cost, by the cost itself.
Labels splitting_order(const Network& net, const Dual& dual, int n, double room) {
  const Vector excess = dual.label_excess(n);
  Labels order = dual.left(n);
  double most = 0;
  for (int l : order) most = std::max(most, excess[at(l)]);
  Vector key = excess;
  if (most < 0.5 * room && !net.node(n).uses.empty()) {
    const Vector& multipliers = dual.multipliers();
    for (const RowUse& use : net.node(n).uses) {
      double price = 0;
      for (int r = use.begin; r < use.end; ++r) price += multipliers[at(r)];
      const Vector& bytes = net.algebra.vector(use.bytes);
      for (std::size_t l = 0; l < key.size(); ++l) key[l] -= price * bytes[l];
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return key[at(a)] < key[at(b)]; });
  return order;
}

double entries_of(const Network& net) {
  double entries = 0;
  for (const Edge& edge : net.edges) {
    if (!edge.gone) entries += static_cast<double>(net.algebra.core(edge.table.core).values.size());
  }
  return entries;
}

// Two halves of a node's labels; that with the present label first.
Found branch(const Network& net, const Dual& dual, double cutoff, Budget& budget) {
  const HeldEntries held(budget, entries_of(net));
  if (budget.held > kMostHeld) return {.bound = dual.bound()};
  const std::vector<int> labels = dual.decode();
  const int n = branching_node(net, dual, labels);
  AUTOPAR_CHECK(n >= 0, "nothing to branch on");
  const Labels order = splitting_order(net, dual, n, cutoff - dual.bound());
  const std::size_t middle = (order.size() + 1) / 2;
  const auto present = std::find(order.begin(), order.end(), labels[at(n)]) - order.begin();
  const bool lower_first = present < static_cast<std::ptrdiff_t>(middle);
  Found all = {.bound = kInfinity};
  for (const bool lower : {lower_first, !lower_first}) {
    Dual half = dual;
    for (std::size_t k = 0; k < order.size(); ++k) {
      if ((k < middle) != lower) half.kill(n, order[k]);
    }
    half.pass(cutoff);
    Found found = explore_survivors(net, half, cutoff, budget);
    if (found.value < cutoff) cutoff = strictly_below(found.value);
    all.keep_better(std::move(found));
  }
  return all;
}

}  // namespace

void tighten(const Network& net, Dual& dual, double& cutoff, Incumbent& best, Budget& budget,
             const Patience& patience) {
  settle(dual, patience, cutoff, true, budget,
         [&] { keep_if_better(net, dual.decode_and_improve(), cutoff, best); });
}

Found explore_survivors(const Network& net, const Dual& dual, double cutoff, Budget& budget) {
  if (dual.exhausted() || dual.bound() >= cutoff) return {.bound = cutoff};
  if (budget.over()) return {.bound = dual.bound()};
  const std::unique_ptr<Network> child = left_of(dual, budget);
  Found found = explore_child(net, *child, cutoff, budget);
  found.bound = std::max(dual.bound(), found.bound);
  return found;
}

Found explore_restricted(const Network& net, const std::vector<Labels>& kept, double cutoff,
                         Budget& budget) {
  const std::unique_ptr<Network> child = restricted(net, kept);
  budget.add(child->algebra.work());
  return explore_child(net, *child, cutoff, budget);
}

Found explore(Network& net, double cutoff, Budget& budget) {
  Incumbent best;
  budget.add(reduce(net));
  budget.add(effort::explore::kNodeWork * static_cast<double>(net.nodes.size() + 10));
  if (net.impossible || net.constant >= cutoff) return {.bound = cutoff};
  const bool empty =
      std::all_of(net.nodes.begin(), net.nodes.end(), [](const Node& n) { return n.gone; });
  if (empty) {
    keep_if_better(net, std::vector<int>(net.nodes.size(), 0), cutoff, best);
    return as_found(net, best, best.value < kInfinity ? best.value : cutoff);
  }
  auto dual = std::make_unique<Dual>(net);
  if (net.capacity.empty()) {
    tighten(net, *dual, cutoff, best, budget, effort::explore::kPatience);
  } else {
    tighten_rows(net, *dual, cutoff, best, budget, effort::explore::kSteps);
  }
  const double bound = dual->bound();
  if (dual->exhausted() || bound >= cutoff) return as_found(net, best, cutoff);
  if (budget.over()) return as_found(net, best, bound);
  std::unique_ptr<Network> child = smaller_network(*dual, cutoff, budget);
  Found below;
  if (child == nullptr) {
    forget_unused(net);
    below = branch(net, *dual, cutoff, budget);
  } else {
    // There can be many levels; what is no longer needed must not wait for the end of the search.
    dual.reset();
    forget_tables(net);
    below = explore_child(net, *child, cutoff, budget);
  }
  if (below.value < cutoff) best = {below.value, below.labels};
  return as_found(net, best, std::max(bound, std::min(below.bound, cutoff)));
}

}  // namespace autopar::solver
