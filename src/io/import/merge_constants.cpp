#include <map>
#include <string_view>
#include <tuple>

#include "io/import/passes.hpp"

namespace autopar {

void merge_constants(Normalisation& n) {
  Graph& graph = n.graph;
  std::map<std::tuple<DType, Shape, std::string_view>, ValueId> first;
  std::vector<ValueId> same_as(graph.values.size());
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    const ValueId id(static_cast<std::int64_t>(i));
    same_as[i] = id;
    const Tensor* tensor = value.kind == ValueKind::kConstant ? value.tensor() : nullptr;
    if (tensor) {
      same_as[i] =
          first.emplace(std::tuple(value.dtype, value.shape, std::string_view(tensor->bytes)), id)
              .first->second;
    }
  }
  for (Op& op : graph.ops) {
    for (ValueId& input : op.inputs) {
      if (input.valid()) input = same_as[input.index()];
    }
  }
}

}  // namespace autopar
