// One level of the double recursion as numbers. A level cuts the machine along one axis; each op
// has a few choices (which of its factors the axis splits, or none), and every value has a role on
// that axis: whole, a partial sum, or split along one of its dimensions. A value's producer leaves
// it in one role, its hub has one, each reader needs one; the prices between roles make a star.
//
//   LevelProblem p;     // nodes: costs per choice, ports; stars: one per value
//   std::vector<int> choice = decide(p, {});
#pragma once

#include <memory>
#include <vector>

namespace autopar::rec {

using Row = std::vector<double>;  // per role of one value

// Per choice of a node and role of a value's hub: what it takes to reach the hub from what the node
// leaves, or from the hub what the node needs.
using PortPrices = std::vector<Row>;

struct LevelPort {
  int star = -1;
  bool produces = false;  // the node makes the value, else it reads it
  std::shared_ptr<const PortPrices> prices;
};
struct LevelNode {
  std::shared_ptr<const std::vector<double>> cost;  // per choice, the preferred one of equals first
  double weight = 0;                                // heavy nodes decide first
  std::vector<LevelPort> ports;
};
struct Star {
  std::vector<int> roles;  // that the hub may have; not empty
  Row base;                // what is fixed: where a source lies, how an output leaves
};
struct LevelProblem {
  std::vector<LevelNode> nodes;  // in the order of the graph
  std::vector<Star> stars;
};

// Nodes first learn from their neighbours what each choice would cost further away (`passes` of
// messages forth and back along the graph, TRW-S). Then one pass in order of weight, as in SAPP:
// each node takes what is cheapest for itself and for the values around it, given the neighbours
// that have decided and the messages of the others; and the same in the order of the graph; the
// cheaper of the two stays. Last, at most `sweeps` passes in which nodes reconsider, all
// neighbours known; no cost rises. O((passes + sweeps) * sum over ports of choices * roles).
// Deterministic: of choices that cost the same (to one part in 1e9) the first wins.
// Source of the messages: Kolmogorov, "Convergent tree-reweighted message passing for energy
// minimization", PAMI 2006.
struct DecideOptions {
  int passes = 6;
  int sweeps = 4;
};
std::vector<int> decide(const LevelProblem& problem, const DecideOptions& options);
// Costs of all nodes and stars for given choices.
double level_cost(const LevelProblem& problem, const std::vector<int>& choices);

}  // namespace autopar::rec
