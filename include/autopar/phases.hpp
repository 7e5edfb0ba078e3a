// The parts of a step of several passes: what every pass runs, and the update.
//
//   StepParts parts = parts_of(graph, rules, strategy);   // graph.passes > 1
//   parts.pass.graph      // forward and backward ops: reads a micro-batch, parameters, acc.*
//   parts.update.graph    // reads parameters, states, acc.*; makes new.*
//
// Each is a graph and a strategy like any other. What both read lies alike in both.
#pragma once

#include "autopar/strategy.hpp"

namespace autopar {

struct StepPart {
  Graph graph;  // inputs and outputs in the order of the whole graph; passes: 1
  GraphRules rules;
  Strategy strategy;
};
struct StepParts {
  StepPart pass;  // with all inputs that the update alone does not read
  StepPart update;
};

// Precondition: the strategy is one of the graph (verify()), and the graph has several passes.
Result<StepParts> parts_of(const Graph& graph, const GraphRules& rules, const Strategy& strategy);

}  // namespace autopar
