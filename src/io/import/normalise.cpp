#include <utility>

#include "io/import/passes.hpp"

namespace autopar {

ValueId Normalisation::add_constant(Tensor tensor, const std::string& stem) {
  Value value;
  value.name = value_names.unique(stem);
  value.dtype = tensor.dtype;
  value.shape = tensor.shape;
  value.kind = ValueKind::kConstant;
  value.data = std::move(tensor);
  return graph.add_value(std::move(value));
}

ValueId Normalisation::add_activation(DType dtype, Shape shape, const std::string& stem) {
  Value value;
  value.name = value_names.unique(stem);
  value.dtype = dtype;
  value.shape = std::move(shape);
  return graph.add_value(std::move(value));
}

void replace_ops(Graph& graph, std::vector<Op> ops) {
  for (Value& value : graph.values) value.producer = OpId();
  graph.ops.clear();
  graph.ops.reserve(ops.size());
  for (Op& op : ops) graph.add_op(std::move(op));
}

std::vector<std::string> normalise(Graph& graph) {
  Normalisation n{graph, {}, {}, {}};
  for (const Value& value : graph.values) n.value_names.take(value.name);
  for (const Op& op : graph.ops) n.op_names.take(op.name);

  produce_outputs(n);
  remove_identities(n);
  split_gemms(n);
  squeeze_einsums(n);
  make_shapes_explicit(n);
  make_operands_explicit(n);
  merge_constants(n);
  remove_dead_code(n);
  return std::move(n.warnings);
}

}  // namespace autopar
