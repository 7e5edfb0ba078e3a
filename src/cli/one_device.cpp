#include "cli/one_device.hpp"

namespace autopar::cli {

OnOneDevice on_one_device(const Graph& program) {
  OnOneDevice result;
  for (const Op& op : program.ops) {
    result.rules.rules.push_back(replicated_rule(shapes_of(program, op)));
  }
  result.rules.class_of_op = classes_of(program, result.rules.rules);
  result.strategy.mesh = {{{"device", 1, 0, 1}}};
  result.strategy.assignments.assign(program.ops.size(), Assignment{{-1}});
  for (const Value& value : program.values) {
    const Spec spec = replicated(value.shape.size());
    result.strategy.values.push_back({spec, spec, spec});
  }
  return result;
}

}  // namespace autopar::cli
