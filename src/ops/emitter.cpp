#include "ops/emitter.hpp"

namespace autopar {
std::string Emitter::stem(const std::string& type) const { return context_.op.name + "/" + type; }

ValueId Emitter::all_gather(ValueId from, const std::vector<int>& axes, std::size_t dimension) {
  if (axes.empty()) return from;
  Shape shape = value(from).shape;
  shape[dimension] *= parts(axes);
  const AbstractCollective gather{.type = "AllGather",
                                  .axes = axes,
                                  .axis = static_cast<std::int64_t>(dimension),
                                  .concat_axis = -1,
                                  .reduce_op = ""};
  return add_collective(context_.program, context_.value_names, context_.op_names, gather, from,
                        shape, stem("AllGather"));
}

ValueId Emitter::all_reduce(ValueId from, const std::vector<int>& axes,
                            const std::string& reduce_op) {
  if (axes.empty()) return from;
  const AbstractCollective collective{
      .type = "AllReduce", .axes = axes, .axis = -1, .concat_axis = -1, .reduce_op = reduce_op};
  return add_collective(context_.program, context_.value_names, context_.op_names, collective, from,
                        value(from).shape, stem("AllReduce"));
}

ValueId Emitter::broadcast(ValueId from, const std::vector<int>& axes, std::int64_t root,
                           ValueId after) {
  return moved_on(from, {.type = "Broadcast", .axes = axes, .reduce_op = "", .root = root}, after);
}

ValueId Emitter::permute(ValueId from, const std::vector<int>& axes, std::int64_t shift,
                         ValueId after) {
  return moved_on(from, {.type = "Permute", .axes = axes, .reduce_op = "", .shift = shift}, after);
}

ValueId Emitter::moved_on(ValueId from, const AbstractCollective& collective, ValueId after) {
  const ValueId made = add_collective(context_.program, context_.value_names, context_.op_names,
                                      collective, from, value(from).shape, stem(collective.type));
  // Further inputs of a collective only order it.
  if (after.valid()) context_.program.op(value(made).producer).inputs.push_back(after);
  return made;
}

ValueId Emitter::own_part(ValueId whole, const std::vector<int>& axes, int dimension) {
  if (axes.empty()) return whole;
  Shape shape = value(whole).shape;
  shape[static_cast<std::size_t>(dimension)] /= parts(axes);
  const AbstractCollective slice{
      .type = "ShardSlice", .axes = axes, .axis = dimension, .concat_axis = -1, .reduce_op = ""};
  return add_collective(context_.program, context_.value_names, context_.op_names, slice, whole,
                        shape, stem("ShardSlice"));
}

ValueId Emitter::offset(const std::vector<int>& axes, std::int64_t extent, DType dtype) {
  const std::int64_t count = parts(axes);
  Tensor table{dtype, {count}, {}};
  for (std::int64_t i = 0; i < count; ++i) {
    table.bytes += scalar_tensor(dtype, static_cast<double>(i * extent)).bytes;
  }
  return own_part(constant(std::move(table)), axes, 0);
}

DType Emitter::output_dtype(std::size_t port) const {
  return context_.graph.value(context_.op.outputs[port]).dtype;
}

Shape Emitter::output_shape(std::size_t port) const {
  return local_shape(context_.specs.outputs[port],
                     context_.graph.value(context_.op.outputs[port]).shape, context_.mesh);
}

ValueId Emitter::add_output(std::size_t port) {
  Value value;
  value.name = context_.output_names[port];
  value.dtype = output_dtype(port);
  value.shape = output_shape(port);
  context_.value_names.take(value.name);
  return context_.program.add_value(std::move(value));
}

std::vector<ValueId> Emitter::finish_all(Op op) {
  op.outputs.assign(context_.op.outputs.size(), ValueId());
  for (std::size_t port = 0; port < op.outputs.size(); ++port) {
    if (has_output(port)) op.outputs[port] = add_output(port);
  }
  const std::vector<ValueId> outputs = op.outputs;
  context_.op_names.take(op.name);
  context_.program.add_op(std::move(op));
  return outputs;
}

ValueId Emitter::finish(std::size_t port, const std::string& type,
                        const std::vector<ValueId>& inputs, Attributes attributes) {
  const ValueId output = add_output(port);
  Op op;
  op.name = port == 0 ? context_.op.name : context_.op_names.unique(stem(type));
  op.type = type;
  op.inputs = inputs;
  op.outputs = {output};
  op.attributes = std::move(attributes);
  op.origin_name = context_.op.origin_name;
  op.origin_type = context_.op.origin_type;
  op.phase = context_.op.phase;
  context_.op_names.take(op.name);
  context_.program.add_op(std::move(op));
  return output;
}

std::pair<ValueId, ValueId> Emitter::finish_first_of_two(const Attributes& attributes) {
  const ValueId first = finish(0, context_.op.type, context_.inputs, attributes);
  const ValueId second = add_value({.name = value_names_.unique(stem(context_.op.type)),
                                    .dtype = output_dtype(1),
                                    .shape = output_shape(1),
                                    .kind = ValueKind::kActivation,
                                    .producer = value(first).producer,
                                    .data = {}});
  context_.program.op(value(first).producer).outputs.push_back(second);
  return {first, second};
}

std::vector<int> Emitter::axes_of(FactorKind kind) const {
  std::vector<int> axes;
  const auto& factors = context_.assignment.factor_of_axis;
  for (std::size_t a = 0; a < factors.size(); ++a) {
    if (factors[a] < 0) continue;
    if (context_.rule.factors[static_cast<std::size_t>(factors[a])].kind == kind) {
      axes.push_back(static_cast<int>(a));
    }
  }
  return axes;
}

std::vector<int> Emitter::axes_of(const std::string& factor) const {
  std::vector<int> axes;
  const int f = context_.rule.factor_index(factor);
  const auto& factors = context_.assignment.factor_of_axis;
  for (std::size_t a = 0; a < factors.size(); ++a) {
    if (f >= 0 && factors[a] == f) axes.push_back(static_cast<int>(a));
  }
  return axes;
}

ValueId widened(Emitter& emitter, ValueId from) {
  const DType dtype = emitter.value(from).dtype;
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return narrow ? emitter.cast(from, DType::kFloat32) : from;
}

ValueId finish_cast(Emitter& emitter, std::size_t port, ValueId from) {
  const DType dtype = emitter.output_dtype(port);
  if (emitter.value(from).dtype == dtype) return emitter.finish(port, "Identity", {from});
  return emitter.finish(port, "Cast", {from}, {{"to", onnx_number(dtype)}});
}

std::vector<ValueId> only_output(const LocalContext& context, ValueId first) {
  std::vector<ValueId> outputs(context.op.outputs.size());
  outputs[0] = first;
  return outputs;
}

}  // namespace autopar
