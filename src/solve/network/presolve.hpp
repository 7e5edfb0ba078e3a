// Fewer nodes, the same optimum: what a node chooses often follows from its neighbour's choice.
#pragma once

#include <optional>
#include <vector>

#include "autopar/problem.hpp"

namespace autopar::solver {

// A problem whose choices stand for choices of another one, one for each of its nodes. Costs and
// uses are the same at all times (up to the rounding of sums).
struct Presolved {
  Problem problem;
  std::vector<int> node_of;                 // per original node: the node that decides for it
  std::vector<std::vector<int>> choice_of;  // per original node: its choice per choice of that
};

// Choices without a possible partner in some neighbour go. Where every choice of a node that is
// left has one possible partner in a neighbour, the neighbour is a function of the node and is
// merged into it, with its costs, edges and uses. Nothing where little would go, or where some node
// has no choice left.
std::optional<Presolved> presolve(const Problem& problem);

// Choices of what is left -> choices of the original problem.
std::vector<int> lift(const Presolved& presolved, const std::vector<int>& choices);

}  // namespace autopar::solver
