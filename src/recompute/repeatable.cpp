#include "recompute/repeatable.hpp"

namespace autopar {
namespace {

bool looks_up(const Op& op) {
  return op.type == "Gather" || op.type == "GatherND" || op.type == "GatherElements";
}
}  // namespace

Repeatable::Repeatable(const Graph& graph)
    : graph_(graph), ready_(graph.values.size(), true), weight_(graph.values.size(), false) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    weight_[v] = graph.values[v].kind == ValueKind::kParameter;
  }
  for (const Op& op : graph.ops) {
    bool from_weights = false, from_data = false;
    for (ValueId input : op.inputs) {
      if (!input.valid() || graph.value(input).kind == ValueKind::kConstant) continue;
      (weight_[input.index()] ? from_weights : from_data) = true;
    }
    for (ValueId output : op.outputs) {
      if (!output.valid()) continue;
      weight_[output.index()] = from_weights && !from_data;
      ready_[output.index()] = !from_data;
    }
  }
}

bool Repeatable::may_repeat(const Op& op, Recompute what) const {
  if (what == Recompute::kNone || is_random(op)) return false;  // random: it gives other numbers
  bool reads_weight = false;
  for (ValueId input : op.inputs) {
    reads_weight |=
        input.valid() && weight_[input.index()] && graph_.value(input).shape.size() >= 2;
  }
  if (looks_up(op)) return !reads_weight;
  if (!is_contraction(op)) return true;
  if (what == Recompute::kFull) return true;
  return what == Recompute::kProducts && !reads_weight;
}

}  // namespace autopar
