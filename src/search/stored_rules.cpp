#include "search/stored_rules.hpp"

namespace autopar {

std::vector<bool> as_read_values(const SearchRequest& request,
                                 const std::function<bool(ValueId)>& holds) {
  const Graph& graph = request.graph;
  std::vector<bool> as_read(graph.values.size(), false);
  for (const auto& [id, rule] : request.stored_rules) {
    as_read[id.index()] = rule.kind == StoredRule::Kind::kAsRead && holds(id);
  }
  if (request.stored_rules.empty()) return as_read;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::kUpdate) continue;
    bool alone = false;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.has_input(i) || graph.value(op.inputs[i]).kind == ValueKind::kConstant) continue;
      alone = as_read[op.inputs[i].index()];
      if (!alone) break;
    }
    for (ValueId output : op.outputs) {
      if (alone && output.valid()) as_read[output.index()] = true;
    }
  }
  return as_read;
}

bool is_never_filled(const SearchRequest& request, const PhaseOps& phase_ops, OpId op) {
  const bool updates = request.graph.op(op).phase == Phase::kUpdate;
  return phase_ops.contains(op) || (updates && !request.stored_rules.empty());
}

}  // namespace autopar
