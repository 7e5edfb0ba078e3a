#include "autopar/memory_parts.hpp"

#include <algorithm>

namespace autopar {
namespace {

// By itself or as what it is seen as.
bool is_read_backward(const Graph& graph, const std::vector<std::vector<Use>>& uses, ValueId id) {
  return std::any_of(uses[id.index()].begin(), uses[id.index()].end(), [&](const Use& use) {
    const Op& op = graph.op(use.op);
    if (op.phase == Phase::kBackward) return true;
    const bool views = is_view(op) || graph.kernel(op).kind == OpKernel::Kind::kView;
    return views && std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
             return output.valid() && is_read_backward(graph, uses, output);
           });
  });
}

}  // namespace

Bytes MemoryParts::total() const {
  return data + parameters + accumulators + states + kept + temporaries + constants;
}

MemoryParts memory_parts(const Graph& graph, const MemoryPeak& peak, const MemoryRoles& roles) {
  const auto uses = uses_of(graph);
  MemoryParts parts;
  parts.constants = peak.constants;
  parts.temporaries = peak.reshards;
  for (const auto& [id, bytes] : peak.values) {
    const Value& value = graph.value(id);
    if (value.kind == ValueKind::kActivation) {
      const bool is_kept = value.producer.valid() &&
                           graph.op(value.producer).phase == Phase::kForward &&
                           is_read_backward(graph, uses, id);
      (is_kept ? parts.kept : parts.temporaries) += bytes;
      continue;
    }
    const auto role = roles.find(value.name);
    switch (role == roles.end() ? MemoryRole::kData : role->second) {
      case MemoryRole::kData:
        parts.data += bytes;
        break;
      case MemoryRole::kParameter:
        parts.parameters += bytes;
        break;
      case MemoryRole::kAccumulator:
        parts.accumulators += bytes;
        break;
      case MemoryRole::kState:
        parts.states += bytes;
        break;
    }
  }
  return parts;
}

}  // namespace autopar
