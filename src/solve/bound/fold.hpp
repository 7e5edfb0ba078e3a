// Folding: nodes that look alike as far as one can see from them choose alike, so that what is said
// about one of many equal layers is said about all of them.
//
// Alike is meant as in colour refinement (Weisfeiler, Leman 1968), ended
// after some rounds, since the ends of a chain of layers would tell all of them apart.
#pragma once

#include <memory>
#include <vector>

#include "solve/effort.hpp"
#include "solve/network/network.hpp"

namespace autopar::solver {

struct Fold {
  std::vector<int> class_of;      // per node of the network; -1: gone
  std::vector<int> class_before;  // as class_of, a round of refinement earlier
  std::vector<int> first;         // per class: the first of its nodes
  std::vector<int> edge_of;       // per edge: its number; those of the same tables between the same
                                  // classes are one; -1: none, gone or within a class
  std::vector<double> edges_in;   // per such edge: of so many
  bool alone = false;             // every node is a class of its own, of the same number
};

// Every node alone; those that are gone have a class without members.
Fold each_alone(const Network& net);

// Nodes are told apart by what is so many edges away. Empty where it would leave more than a part
// of the nodes. What is used counts, but not when, since layers differ in that; with `rows`
// (ascending), nothing counts but which of these are used, and by how much.
Fold fold(const Network& net, int rounds = effort::fold::kFoldRounds,
          const std::vector<int>* rows = nullptr);
// Every node alone where that is empty.
Fold fold_or_alone(const Network& net, int rounds = effort::fold::kFoldRounds);
// Labels per class -> labels of the network's nodes.
std::vector<int> unfold(const Fold& fold, const std::vector<int>& labels);
// Per node the labels that it, or a node of its class, has in one of the labellings: ascending;
// none of nodes that are gone.
std::vector<Labels> met_labels(const Fold& fold, const std::vector<std::vector<int>>& labellings);

}  // namespace autopar::solver
