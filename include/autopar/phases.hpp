// The parts of a step of several passes: what every pass runs, and the update.
//
//   StepParts parts = parts_of(graph, rules, strategy);   // graph.passes > 1
//   parts.pass.graph      // forward and backward ops: reads a micro-batch, parameters, acc.*
//   parts.update.graph    // reads parameters, states, acc.*; makes new.*
//
//   std::vector<int> part_of_op = ...;                     // forward 0, backward 1, update 2
//   auto programs = cut_parts(graph, rules, strategy, part_of_op, 3);
//
// Each is a graph and a strategy like any other. What several read lies alike in all. What one
// makes and another reads is an output of the one and an input of the other, in the layout in which
// it waits between its readers.
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

// `part_of_op`: from 0 on, per op; a part reads nothing that a later one makes. An input that no op
// reads is one of part 0. Errors: none but those of verify() of what is made.
Result<std::vector<StepPart>> cut_parts(const Graph& graph, const GraphRules& rules,
                                        const Strategy& strategy,
                                        const std::vector<int>& part_of_op, int parts);

// Precondition: the strategy is one of the graph (verify()), and the graph has several passes.
Result<StepParts> parts_of(const Graph& graph, const GraphRules& rules, const Strategy& strategy);

}  // namespace autopar
