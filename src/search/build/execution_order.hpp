// Nodes numbered as the graph runs.
#pragma once

#include "autopar/search.hpp"
#include "autopar/strategy.hpp"

namespace autopar {

// Gives the nodes numbers in the order of execution: what is stored before its first reader, a
// value's hub and its output after its producer. Searchers that go from node to node in this order
// follow the graph.
void number_in_execution_order(const Graph& graph, const std::vector<Readers>& readers,
                               MeshProblem& problem);

}  // namespace autopar
