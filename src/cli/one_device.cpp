#include "cli/one_device.hpp"

namespace autopar::cli {

Mesh one_device() { return {{{"device", 1, 0, 1}}}; }

Strategy unsharded_strategy(const Graph& graph) {
  Strategy strategy;
  strategy.mesh = one_device();
  strategy.assignments.assign(graph.ops.size(), Assignment{{-1}});
  for (const Value& value : graph.values) {
    const Spec spec = replicated(value.shape.size());
    strategy.values.push_back({spec, spec, spec});
  }
  return strategy;
}

OnOneDevice on_one_device(const Graph& program) {
  OnOneDevice result{{}, unsharded_strategy(program)};
  for (const Op& op : program.ops) {
    result.rules.rules.push_back(replicated_rule(shapes_of(program, op)));
  }
  result.rules.class_of_op = classes_of(program, result.rules.rules);
  return result;
}

}  // namespace autopar::cli
