#include <optional>
#include <string>

#include "autopar/strategy.hpp"

namespace autopar {

Result<std::vector<OpSpecs>> op_specs_of(const Graph& graph, const GraphRules& rules,
                                         const Strategy& strategy) {
  AUTOPAR_CHECK(rules.class_of_op.size() == rules.rules.size(), "rules without classes of ops");
  if (strategy.assignments.size() != graph.ops.size() || rules.rules.size() != graph.ops.size()) {
    return input_error("the graph has " + std::to_string(graph.ops.size()) + " ops, its rules " +
                       std::to_string(rules.rules.size()) + " and the strategy assigns " +
                       std::to_string(strategy.assignments.size()));
  }
  std::vector<OpSpecs> result;
  result.reserve(graph.ops.size());
  PerClass<OpSpecs> known;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Rule& rule = rules.rules[o];
    const Assignment& assignment = strategy.assignments[o];
    if (const OpSpecs* specs = known.find(rules.class_of_op[o], assignment)) {
      result.push_back(*specs);
      continue;
    }
    if (assignment.factor_of_axis.size() != strategy.mesh.axes.size()) {
      return input_error(described(graph.ops[o]) + ": the assignment has " +
                         std::to_string(assignment.factor_of_axis.size()) + " axes, the mesh " +
                         to_text(strategy.mesh) + " has " +
                         std::to_string(strategy.mesh.axes.size()));
    }
    for (int factor : assignment.factor_of_axis) {
      if (factor < -1 || factor >= static_cast<int>(rule.factors.size())) {
        return input_error(described(graph.ops[o]) + ": the assignment names factor " +
                           std::to_string(factor) + " of a rule with " +
                           std::to_string(rule.factors.size()) + " factors");
      }
    }
    std::optional<OpSpecs> specs = specs_of(rule, assignment, strategy.mesh);
    if (!specs) {
      return input_error(described(graph.ops[o]) + ": the assignment '" +
                         to_text(assignment, rule, strategy.mesh) + "' is not valid on the mesh " +
                         to_text(strategy.mesh) + " under the rule \"" + to_text(rule) +
                         "\" (a split factor must be divisible and not marked ^)");
    }
    result.push_back(known.add(rules.class_of_op[o], assignment, std::move(*specs)));
  }
  return result;
}

}  // namespace autopar
