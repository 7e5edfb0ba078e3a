#include "search/solver/merge.hpp"

#include <algorithm>

namespace autopar::solver {
namespace {

constexpr double kLabels[] = {64, 256, 1024, 4096};

std::size_t at(int index) { return static_cast<std::size_t>(index); }

std::vector<int> neighbours(const Network& net, int n) {
  std::vector<int> result;
  for (int e : net.node(n).edges) result.push_back(other_end(net.edge(e), n));
  std::sort(result.begin(), result.end());
  return result;
}

// The edge of n to merge along: the one that closes most triangles, then the one with the fewest
// labels; -1 if none stays within the limit.
int best_edge(const Network& net, int n, double limit, const std::vector<char>& taken) {
  const std::vector<int> mine = neighbours(net, n);
  int best = -1;
  std::size_t best_common = 0;
  double best_labels = 0;
  for (int e : net.node(n).edges) {
    const int other = other_end(net.edge(e), n);
    const double labels =
        static_cast<double>(net.label_count(n)) * static_cast<double>(net.label_count(other));
    if (taken[at(other)] || labels > limit) continue;
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
    bool merged = false;
    for (int n : order) {
      if (taken[at(n)] || net.node(n).gone) continue;
      const int e = best_edge(net, n, limit, taken);
      if (e < 0) continue;
      taken[at(net.edge(e).a)] = taken[at(net.edge(e).b)] = 1;
      const Edge edge = net.edge(e);
      merge_ends(net, e, cutoff);
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
