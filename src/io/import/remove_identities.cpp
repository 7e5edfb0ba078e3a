#include <algorithm>
#include <numeric>
#include <utility>

#include "io/import/passes.hpp"

namespace autopar {
namespace {

bool all_zero(const std::optional<std::vector<std::int64_t>>& values) {
  return values &&
         std::all_of(values->begin(), values->end(), [](std::int64_t v) { return v == 0; });
}

// Outside training, and where nobody reads the mask.
bool is_inactive_dropout(const Graph& graph, const Op& op, const std::vector<bool>& read) {
  if (op.has_output(1) && read[op.outputs[1].index()]) return false;
  return !op.has_input(2) || all_zero(constant_ints(graph, op, 2));
}

bool is_identity_permutation(const Op& op, std::size_t rank) {
  std::vector<std::int64_t> same(rank);
  std::iota(same.begin(), same.end(), 0);
  return rank <= 1 || op.ints_attribute("perm") == same;
}

bool changes_nothing(const Graph& graph, const Op& op, const std::vector<bool>& read) {
  if (!op.domain.empty() || !op.has_input(0) || !op.has_output(0)) return false;
  if (op.sums == SumsAt::kBefore) return false;  // partial sums become whole there
  if (op.type == "Identity") return true;
  if (op.type == "Dropout") return is_inactive_dropout(graph, op, read);
  const Value& x = graph.value(op.inputs[0]);
  const Value& y = graph.value(op.outputs[0]);
  if (x.dtype != y.dtype || x.shape != y.shape) return false;
  if (op.type == "Transpose") return is_identity_permutation(op, x.shape.size());
  return op.type == "Cast" || op.type == "CastLike" || op.type == "Reshape" ||
         op.type == "Squeeze" || op.type == "Unsqueeze" || op.type == "Flatten" ||
         op.type == "Expand" || (op.type == "Concat" && op.inputs.size() == 1);
}

void mark(const std::vector<ValueId>& ids, std::vector<bool>& marks) {
  for (const ValueId id : ids) {
    if (id.valid()) marks[id.index()] = true;
  }
}

}  // namespace

void remove_identities(Normalisation& n) {
  Graph& graph = n.graph;
  std::vector<bool> is_output(graph.values.size(), false);
  mark(graph.outputs, is_output);
  std::vector<bool> read = is_output;
  for (const Op& op : graph.ops) mark(op.inputs, read);
  std::vector<ValueId> same_as(graph.values.size());
  for (std::size_t i = 0; i < same_as.size(); ++i) {
    same_as[i] = ValueId(static_cast<std::int64_t>(i));
  }
  std::vector<Op> kept;
  for (Op& op : graph.ops) {
    for (ValueId& input : op.inputs) {
      if (input.valid()) input = same_as[input.index()];
    }
    if (!changes_nothing(graph, op, read)) {
      kept.push_back(std::move(op));
      continue;
    }
    const ValueId x = op.inputs[0];
    const ValueId y = op.outputs[0];
    if (is_output[y.index()]) {
      // The output's name has to stay: on x, if nothing else claims that one's name.
      if (!graph.value(x).producer.valid() || is_output[x.index()]) {
        kept.push_back(std::move(op));
        continue;
      }
      std::swap(graph.value(x).name, graph.value(y).name);
      std::replace(graph.outputs.begin(), graph.outputs.end(), y, x);
      is_output[x.index()] = true;
    }
    same_as[y.index()] = x;
  }
  replace_ops(graph, std::move(kept));
}

}  // namespace autopar
