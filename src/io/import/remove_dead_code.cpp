#include <algorithm>
#include <utility>

#include "autopar/comm.hpp"
#include "io/import/passes.hpp"

namespace autopar {
namespace {

std::vector<char> live_ops(const Graph& graph, std::vector<char>& live_values) {
  for (const ValueId output : graph.outputs) live_values[output.index()] = true;
  for (const ValueId input : graph.inputs) live_values[input.index()] = true;
  std::vector<char> live(graph.ops.size());
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
  std::vector<char> live_values(graph.values.size());
  const std::vector<char> live = live_ops(graph, live_values);
  keep(graph, live, live_values);
}

}  // namespace autopar
