// The strategy that choices of a problem stand for.
#include "autopar/search.hpp"

namespace autopar {

Strategy strategy_of(const Graph& graph, const MeshProblem& problem,
                     const std::vector<int>& choices) {
  Strategy strategy;
  strategy.mesh = problem.mesh;
  std::vector<const OpSpecs*> specs;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto choice =
        static_cast<std::size_t>(choices[static_cast<std::size_t>(problem.node_of_op[o])]);
    strategy.assignments.push_back(problem.choices_of_op[o]->assignments[choice]);
    specs.push_back(&problem.choices_of_op[o]->specs[choice]);
  }
  const auto chosen = [&](int node) -> const Spec& {
    const auto n = static_cast<std::size_t>(node);
    return problem.specs_of_node[n][static_cast<std::size_t>(choices[n])];
  };
  const std::vector<Readers> readers = readers_of(graph);
  strategy.values.reserve(graph.values.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    ValueSpecs entry;
    if (problem.source_node[v] >= 0) {
      entry.spec = chosen(problem.source_node[v]);
    } else if (value.producer.valid()) {
      const Op& op = graph.op(value.producer);
      for (std::size_t j = 0; j < op.outputs.size(); ++j) {
        if (op.outputs[j].index() == v) entry.spec = specs[value.producer.index()]->outputs[j];
      }
    } else {
      entry.spec = replicated(value.shape.size());
    }
    if (problem.output_node[v] >= 0) entry.output = chosen(problem.output_node[v]);
    if (problem.hub_node[v] >= 0) {
      entry.hub = chosen(problem.hub_node[v]);
    } else if (problem.output_node[v] >= 0) {
      entry.hub = entry.output;
    } else if (readers[v].uses.size() == 1 && value.kind != ValueKind::kConstant) {
      const Use& use = readers[v].uses[0];
      entry.hub = specs[use.op.index()]->inputs[static_cast<std::size_t>(use.port)];
    } else {
      entry.hub = entry.spec;
    }
    if (problem.output_node[v] < 0) entry.output = entry.hub;
    strategy.values.push_back(std::move(entry));
  }
  return strategy;
}

}  // namespace autopar
