#include "solve/branch/merge.hpp"

#include <algorithm>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::merge;

std::vector<int> neighbours(const Network& net, int n) {
  std::vector<int> result;
  for (int e : net.node(n).edges) result.push_back(other_end(net.edge(e), n));
  std::sort(result.begin(), result.end());
  return result;
}

// What merging two nodes would make; infinite where it would make too many.
double labels_within(Network& net, int one, int other, double limit, double cutoff) {
  const double pairs = static_cast<double>(net.label_count(one)) * net.label_count(other);
  if (pairs <= limit) return pairs;
  if (pairs > kPairs * limit) return kInfinity;
  const double labels = merged_labels(net, one, other, cutoff);
  return labels <= limit ? labels : kInfinity;
}

// The edge of n to merge along: the one that closes most triangles, then the one with the fewest
// labels; -1 if none stays within the limit.
int best_edge(Network& net, int n, double limit, double cutoff, const std::vector<char>& taken) {
  const std::vector<int> mine = neighbours(net, n);
  int best = -1;
  std::size_t best_common = 0;
  double best_labels = 0;
  for (int e : net.node(n).edges) {
    const int other = other_end(net.edge(e), n);
    if (taken[at(other)]) continue;
    const double labels = labels_within(net, n, other, limit, cutoff);
    if (labels == kInfinity) continue;
    const std::vector<int> theirs = neighbours(net, other);
    std::vector<int> common;
    std::set_intersection(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                          std::back_inserter(common));
    if (best < 0 || common.size() > best_common ||
        (common.size() == best_common && labels < best_labels)) {
      best = e;
      best_common = common.size();
      best_labels = labels;
    }
  }
  return best;
}

// Nodes that only share rows, equal ones with each other: of their common labels, many are equal.
bool merge_isolated(Network& net, const std::vector<int>& order, double limit, double cutoff) {
  std::vector<int> isolated;
  for (int n : order) {
    if (!net.node(n).gone && net.node(n).edges.empty()) isolated.push_back(n);
  }
  const auto content = [&](int n) {
    std::vector<int> key = {net.label_count(n), net.node(n).cost};
    for (const RowUse& use : net.node(n).uses) {
      key.insert(key.end(), {use.begin, use.end, use.bytes});
    }
    return key;
  };
  std::stable_sort(isolated.begin(), isolated.end(),
                   [&](int a, int b) { return content(a) < content(b); });
  bool merged = false;
  for (std::size_t i = 0; i + 1 < isolated.size() && !net.impossible; i += 2) {
    const int one = isolated[i], other = isolated[i + 1];
    if (labels_within(net, one, other, limit, cutoff) == kInfinity) continue;
    merge(net, one, other, cutoff);
    merged = true;
  }
  return merged;
}

}  // namespace

bool merge_nodes(Network& net, double cutoff) {
  std::vector<int> order;
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (!net.nodes[n].gone) order.push_back(static_cast<int>(n));
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return net.node(a).edges.size() < net.node(b).edges.size();
  });
  for (int n : order) join_parallel(net, n);
  for (double limit : kLabels) {
    std::vector<char> taken(net.nodes.size(), 0);
    bool merged = merge_isolated(net, order, limit, cutoff);
    if (net.impossible) return true;
    for (int n : order) {
      if (taken[at(n)] || net.node(n).gone) continue;
      const int e = best_edge(net, n, limit, cutoff, taken);
      if (e < 0) continue;
      taken[at(net.edge(e).a)] = taken[at(net.edge(e).b)] = 1;
      const Edge edge = net.edge(e);
      merge(net, edge.a, edge.b, cutoff);
      if (net.impossible) return true;
      const int kept = net.node(edge.a).gone ? edge.b : edge.a;
      // The next merge must find one edge per pair, or an edge would lead back to its node.
      join_parallel(net, kept);
      merged = true;
    }
    if (merged) return true;
  }
  return false;
}

}  // namespace autopar::solver
