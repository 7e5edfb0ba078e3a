#include "search/stored_rules.hpp"

#include <algorithm>

namespace autopar {

namespace {

// Whether an op only hands on what is stored, in another form: a sum over it is of another size,
// and so is what it makes beside a constant that is larger, such as the gradient of a sum of all
// outputs.
bool hands_on(const Graph& graph, const Op& op, const Rule& rule,
              const std::vector<bool>& as_read) {
  for (const Factor& factor : rule.factors) {
    if (factor.kind == FactorKind::kSum || factor.kind == FactorKind::kMax ||
        factor.kind == FactorKind::kMin) {
      return false;
    }
  }
  bool any = false;
  std::int64_t stored = 0, constant = 0;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    const Value& value = graph.value(op.inputs[i]);
    const bool is_constant = value.kind == ValueKind::kConstant;
    if (!is_constant && !as_read[op.inputs[i].index()]) return false;
    any = any || !is_constant;
    std::int64_t& most = is_constant ? constant : stored;
    most = std::max(most, element_count(value.shape));
  }
  return any && constant <= stored;
}

}  // namespace

std::vector<bool> as_read_values(const SearchRequest& request,
                                 const std::function<bool(ValueId)>& holds) {
  const Graph& graph = request.graph;
  std::vector<bool> as_read(graph.values.size(), false);
  for (const auto& [id, rule] : request.stored_rules) {
    as_read[id.index()] = rule.kind == StoredRule::Kind::kAsRead && holds(id);
  }
  if (request.stored_rules.empty()) return as_read;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::kUpdate || !hands_on(graph, op, request.rules.rules[o], as_read))
      continue;
    for (ValueId output : op.outputs) {
      if (output.valid()) as_read[output.index()] = true;
    }
  }
  return as_read;
}

bool is_never_filled(const SearchRequest& request, const PhaseOps& phase_ops, OpId op) {
  const bool updates = request.graph.op(op).phase == Phase::kUpdate;
  return phase_ops.contains(op) || (updates && !request.stored_rules.empty());
}

}  // namespace autopar
