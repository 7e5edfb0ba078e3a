// What labellings have in common with each other's nodes: from these labels they are mixed.
#pragma once

#include <vector>

#include "solve/bound/fold.hpp"
#include "solve/network/network.hpp"

namespace autopar::solver {

// Per node the labels that it, or a node of its class, has in one of several labellings.
class LabelPool {
 public:
  explicit LabelPool(Fold like) : like_(std::move(like)), met_(like_.first.size()) {}

  void add(const std::vector<int>& labels);
  std::vector<Labels> labels() const;  // ascending; none of nodes that are gone

 private:
  const Fold like_;
  std::vector<Labels> met_;  // per class, ascending
};

}  // namespace autopar::solver
