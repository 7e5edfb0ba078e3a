#include "solve/state/found.hpp"

#include <utility>

namespace autopar::solver {
namespace {

bool within(const Network& net, const Vector& uses) {
  for (std::size_t r = 0; r < uses.size(); ++r) {
    if (uses[r] > net.capacity[r]) return false;
  }
  return true;
}

}  // namespace

void Found::keep_better(Found other) {
  bound = std::min(bound, other.bound);
  if (other.value < value) {
    value = other.value;
    labels = std::move(other.labels);
  }
}

void keep_if_better(const Network& net, std::vector<int> labels, double& cutoff, Incumbent& best) {
  double value = value_of(net, labels);
  if (!net.capacity.empty()) {
    const Vector uses = uses_of(net, labels);
    if (!within(net, uses)) return;
    // By the multipliers, back to cost: what the slack of the rows was credited.
    for (std::size_t r = 0; r < uses.size(); ++r) {
      if (net.multiplier[r] > 0) value += net.multiplier[r] * (net.capacity[r] - uses[r]);
    }
  }
  if (!(value < cutoff)) return;
  best = {value, std::move(labels)};
  cutoff = strictly_below(value);
}

std::vector<int> in_parent(const Network& parent, const Network& child,
                           const std::vector<int>& found) {
  std::vector<int> labels(parent.nodes.size(), 0);
  for (std::size_t n = 0; n < found.size(); ++n) labels[at(child.origin[n])] = found[n];
  return labels;
}

}  // namespace autopar::solver
