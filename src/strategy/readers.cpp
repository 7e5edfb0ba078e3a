#include <algorithm>

#include "autopar/strategy.hpp"

namespace autopar {

std::vector<Readers> readers_of(const Graph& graph) {
  const int horizon = static_cast<int>(graph.ops.size());
  std::vector<Readers> readers(graph.values.size());
  std::vector<std::vector<Use>> uses = uses_of(graph);
  for (ValueId output : graph.outputs) readers[output.index()].is_output = true;
  for (std::size_t v = 0; v < readers.size(); ++v) {
    Readers& r = readers[v];
    r.uses = std::move(uses[v]);
    r.produced = std::max(0, graph.values[v].producer.value);
    r.first = r.last = r.produced;
    if (!r.uses.empty()) {
      if (!r.is_output) r.first = r.uses.front().op.value;
      r.last = r.uses.back().op.value;
    }
    if (r.is_output) r.last = std::max(0, horizon - 1);
  }
  return readers;
}

bool meets_phases(const Graph& graph, const Readers& readers) {
  if (!graph.has_passes() || readers.uses.empty()) return false;
  // The update's ops come last.
  return graph.op(readers.uses.front().op).phase != Phase::kUpdate &&
         graph.op(readers.uses.back().op).phase == Phase::kUpdate;
}

bool is_identity(const Op& op) { return op.type == "Identity" && op.domain.empty(); }

ValueId handed_on(const Graph& graph, ValueId value) {
  OpId producer = graph.value(value).producer;
  while (producer.valid() && is_identity(graph.op(producer))) {
    value = graph.op(producer).inputs[0];
    producer = graph.value(value).producer;
  }
  return value;
}

}  // namespace autopar
