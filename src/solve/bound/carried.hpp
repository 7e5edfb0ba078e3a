// Messages that are carried from one network of a problem to another one, that was reduced in
// another way.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// By the choices that labels stand for: what comes in at a node from another one.
struct CarriedMessages {
  struct Node {
    std::vector<std::uint64_t> choices;      // of its labels, as numbers that tell them apart
    std::map<int, std::vector<float>> from;  // per far node, per label
  };
  std::vector<Node> nodes;

  bool empty() const { return nodes.empty(); }
};

// Per node: what its labels stand for. Of networks of one problem equal numbers mean the same
// choices.
std::vector<std::vector<std::uint64_t>> choices_of_labels(const Network& net);

}  // namespace autopar::solver
