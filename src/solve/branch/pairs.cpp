#include "solve/branch/pairs.hpp"

#include <algorithm>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::pairs;

// Uses per label and row.
std::vector<Vector> dense_uses(const Network& net, int n) {
  std::vector<Vector> result(at(net.label_count(n)), Vector(net.capacity.size(), 0.0));
  for (const RowUse& use : net.node(n).uses) {
    for (std::size_t l = 0; l < result.size(); ++l) {
      const double bytes = net.algebra.vector(use.bytes)[l];
      for (int r = use.begin; r < use.end; ++r) result[l][at(r)] += bytes;
    }
  }
  return result;
}

Labels by_cost(const Vector& cost) {
  Labels order(cost.size());
  for (std::size_t l = 0; l < cost.size(); ++l) order[l] = static_cast<int>(l);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return cost[at(a)] < cost[at(b)]; });
  return order;
}

}  // namespace

bool enumerate_pairs(const Network& net, double cutoff, Budget& budget, Incumbent& best) {
  std::vector<int> left;
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (!net.nodes[n].gone) left.push_back(static_cast<int>(n));
  }
  if (left.size() != 2 || !net.node(left[0]).edges.empty()) return false;
  const double pairs = static_cast<double>(net.label_count(left[0])) * net.label_count(left[1]);
  const double labels = net.label_count(left[0]) + net.label_count(left[1]);
  const double rows = static_cast<double>(net.capacity.size());
  if (pairs > kPairs || labels * rows > kRowUses) return false;
  const Vector& first = net.cost(left[0]);
  const Vector& second = net.cost(left[1]);
  const std::vector<Vector> uses = dense_uses(net, left[0]), more = dense_uses(net, left[1]);
  const Labels order = by_cost(second);
  for (int i : by_cost(first)) {
    for (int j : order) {
      if (!(net.constant + first[at(i)] + second[at(j)] < cutoff)) break;
      bool fits = true;
      for (std::size_t r = 0; r < net.capacity.size() && fits; ++r) {
        fits = uses[at(i)][r] + more[at(j)][r] <= net.capacity[r];
      }
      budget.add(4 + rows);
      if (!fits) continue;
      std::vector<int> both(net.nodes.size(), 0);
      both[at(left[0])] = i;
      both[at(left[1])] = j;
      keep_if_better(net, std::move(both), budget, cutoff, best);
    }
  }
  budget.add(labels * rows);
  return true;
}

}  // namespace autopar::solver
