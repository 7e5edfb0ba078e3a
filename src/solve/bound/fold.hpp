// Folding: nodes that look alike as far as one can see from them choose alike, so that the equal
// layers of a network become one whose costs count as often as there are layers.
//
// The folded network's labellings are those of the network in which like nodes have like labels: a
// good one is quickly found, and its value is an upper bound. Its messages, spread over the layers,
// are where the bound of the whole network begins; that bound is computed on the whole and owes
// nothing to the folding. Alike is meant as in colour refinement (Weisfeiler, Leman 1968), ended
// after some rounds, since the ends of a chain of layers would tell all of them apart.
#pragma once

#include <memory>
#include <vector>

#include "solve/bound/dual.hpp"
#include "solve/network/network.hpp"

namespace autopar::solver {

struct Fold {
  std::vector<int> class_of;      // per node of the network; -1: gone
  std::vector<int> class_before;  // as class_of, a round of refinement earlier
  std::vector<int> first;         // per class: the first of its nodes
  std::vector<int> edge_of;  // per edge: its edge in the folded network; -1: none, gone or within
                             // a class
  std::vector<double> edges_in;  // per edge of the folded network: of so many
};

inline constexpr int kFoldRounds = 8;

// Nodes are told apart by what is so many edges away. Empty where it would leave more than a part
// of the nodes.
Fold fold(const Network& net, int rounds = kFoldRounds);
// A network with one node per class; nodes, edges and labels are numbered as in `fold`.
std::unique_ptr<Network> folded_network(const Network& net, const Fold& fold);
// Labels per class -> labels of the network's nodes.
std::vector<int> unfold(const Fold& fold, const std::vector<int>& labels);

}  // namespace autopar::solver
