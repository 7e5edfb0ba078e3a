// What a part of the search has found, and what it keeps.
#pragma once

#include "solve/network/network.hpp"
#include "solve/state/budget.hpp"

namespace autopar::solver {

// Labels of the nodes of a network that are left.
struct Incumbent {
  double value = kInfinity;
  std::vector<int> labels = {};
};

// The answer of a search below a cutoff, for a whole network.
struct Found {
  double value = kInfinity;  // infinite: nothing below the cutoff was found
  std::vector<int> labels =
      {};            // in the numbering of the network's origin, per node of the network
  double bound = 0;  // no labelling below the cutoff has a smaller value than this
  void keep_better(Found other);
};

// Only if it is within the capacities and below the cutoff, which it lowers; its value counts
// without the rows' prices.
void keep_if_better(const Network& net, std::vector<int> labels, double& cutoff, Incumbent& best);

// A solution of a child network, whose origin are the parent's remaining nodes and their labels.
std::vector<int> in_parent(const Network& parent, const Network& child,
                           const std::vector<int>& found);

}  // namespace autopar::solver
