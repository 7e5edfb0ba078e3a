#include <algorithm>

#include "autopar/stages.hpp"

namespace autopar {

Graph without_update(const Graph& chunk) {
  Graph to;
  to.name = chunk.name;
  to.opset = chunk.opset;
  to.passes = chunk.passes;
  to.accumulates = chunk.accumulates;
  to.in_flight = chunk.in_flight;
  std::vector<char> is_used(chunk.values.size());
  for (const Op& op : chunk.ops) {
    if (op.phase == Phase::kUpdate) continue;
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (ValueId id : *ids) {
        if (id.valid()) is_used[id.index()] = 1;
      }
    }
  }
  std::vector<ValueId> moved(chunk.values.size());
  for (std::size_t v = 0; v < chunk.values.size(); ++v) {
    if (is_used[v] == 0) continue;
    Value value = chunk.values[v];
    value.producer = {};
    moved[v] = to.add_value(std::move(value));
  }
  for (const Op& op : chunk.ops) {
    if (op.phase == Phase::kUpdate) continue;
    Op copy = op;
    for (auto* ids : {&copy.inputs, &copy.outputs}) {
      for (ValueId& id : *ids) {
        if (id.valid()) id = moved[id.index()];
      }
    }
    to.add_op(std::move(copy));
  }
  for (ValueId id : chunk.inputs) {
    if (moved[id.index()].valid()) to.inputs.push_back(moved[id.index()]);
  }
  for (ValueId id : chunk.outputs) {
    if (moved[id.index()].valid()) to.outputs.push_back(moved[id.index()]);
  }
  // Sums of gradients leave with the passes.
  const auto uses = uses_of(to);
  for (std::size_t v = 0; v < to.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    const bool leaves = std::find(to.outputs.begin(), to.outputs.end(), id) != to.outputs.end();
    if (to.values[v].producer.valid() && uses[v].empty() && !leaves) to.outputs.push_back(id);
  }
  return to;
}

}  // namespace autopar
