#include <algorithm>
#include <utility>

#include "autopar/comm.hpp"
#include "io/import/passes.hpp"

namespace autopar {
namespace {

std::vector<bool> live_ops(const Graph& graph, std::vector<bool>& live_values) {
  for (const ValueId output : graph.outputs) live_values[output.index()] = true;
  for (const ValueId input : graph.inputs) live_values[input.index()] = true;
  std::vector<bool> live(graph.ops.size(), false);
  for (std::size_t i = graph.ops.size(); i-- > 0;) {
    const Op& op = graph.ops[i];
    // Other ranks wait for what a rank sends, whether or not it reads what it gets.
    live[i] = (is_collective(op) && !is_slice(op)) ||
              std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
                return output.valid() && live_values[output.index()];
              });
    if (!live[i]) continue;
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (const ValueId id : *ids) {
        if (id.valid()) live_values[id.index()] = true;
      }
    }
  }
  return live;
}

}  // namespace

void remove_dead_code(Normalisation& n) {
  Graph& graph = n.graph;
  std::vector<bool> live_values(graph.values.size(), false);
  const std::vector<bool> live = live_ops(graph, live_values);

  std::vector<ValueId> renumbered(graph.values.size());
  std::vector<Value> values;
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    if (!live_values[i]) continue;
    renumbered[i] = ValueId(static_cast<std::int64_t>(values.size()));
    values.push_back(std::move(graph.values[i]));
  }
  graph.values = std::move(values);
  const auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id.valid()) id = renumbered[id.index()];
    }
  };
  renumber(graph.inputs);
  renumber(graph.outputs);
  std::vector<Op> ops;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live[i]) continue;
    renumber(graph.ops[i].inputs);
    renumber(graph.ops[i].outputs);
    ops.push_back(std::move(graph.ops[i]));
  }
  replace_ops(graph, std::move(ops));
}

}  // namespace autopar
