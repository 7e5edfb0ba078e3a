// Sums over ranges of rows, and the fullest row.
#pragma once

#include <algorithm>
#include <vector>

#include "solve/network/algebra.hpp"

namespace autopar::solver {

// Segment tree with what was added to a whole range kept at its node: O(log rows) each.
class Peaks {
 public:
  explicit Peaks(const Vector& values) {
    while (leaves_ < values.size()) leaves_ *= 2;
    most_.assign(2 * leaves_, -1e300);
    added_.assign(2 * leaves_, 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) most_[leaves_ + i] = values[i];
    for (std::size_t i = leaves_; i-- > 1;) pull(i);
  }
  void add(int begin, int end, double value) {
    if (begin < end) add(1, 0, leaves_, at(begin), at(end), value);
  }
  double most() const { return most_[1]; }
  // The first row with the greatest value.
  int fullest() const {
    std::size_t node = 1;
    while (node < leaves_) node = most_[2 * node] >= most_[2 * node + 1] ? 2 * node : 2 * node + 1;
    return static_cast<int>(node - leaves_);
  }

 private:
  void pull(std::size_t node) {
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }
  void add(std::size_t node, std::size_t from, std::size_t to, std::size_t begin, std::size_t end,
           double value) {
    if (begin <= from && to <= end) {
      most_[node] += value;
      added_[node] += value;
      return;
    }
    const std::size_t middle = (from + to) / 2;
    if (begin < middle) add(2 * node, from, middle, begin, end, value);
    if (end > middle) add(2 * node + 1, middle, to, begin, end, value);
    pull(node);
  }

  std::size_t leaves_ = 1;
  Vector most_, added_;  // of a node: all that is below it; what was added to all of that
};

}  // namespace autopar::solver
