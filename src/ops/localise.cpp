#include "ops/emitter.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// The op itself on local shapes.
std::vector<ValueId> copy_op(const LocalContext& context, const OpRow* row) {
  Op copy = context.op;
  copy.inputs = context.inputs;
  if (row != nullptr && row->rewrite != nullptr) row->rewrite(context, copy);
  return Emitter(context).finish_all(std::move(copy));
}

}  // namespace

Result<std::vector<ValueId>> localise(const LocalContext& context) {
  const OpRow* row = find_row(context.op);
  if (!is_plain_local(context.graph, context.op, context.rule, context.assignment)) {
    if (is_moving(context.rule, context.assignment)) return row->moving(context);
    const bool halo = !Emitter(context).axes_of(FactorKind::kHalo).empty();
    return halo ? row->halo(context) : row->split(context);
  }
  return copy_op(context, row);
}

ValueId add_collective(Graph& program, Names& value_names, Names& op_names,
                       const AbstractCollective& collective, ValueId input,
                       const Shape& output_shape, const std::string& stem) {
  Value value;
  value.name = value_names.unique(stem);
  value.dtype = program.value(input).dtype;
  value.shape = output_shape;
  const ValueId output = program.add_value(std::move(value));
  Op op;
  op.name = op_names.unique(stem);
  op.type = collective.type;
  op.domain = kCollectiveDomain;
  op.inputs = {input};
  op.outputs = {output};
  op.attributes["axes"] = std::vector<std::int64_t>(collective.axes.begin(), collective.axes.end());
  if (collective.axis >= 0) op.attributes["axis"] = collective.axis;
  if (collective.concat_axis >= 0) op.attributes["concat_axis"] = collective.concat_axis;
  if (collective.root >= 0) op.attributes["root"] = collective.root;
  if (collective.shift != 0) op.attributes["shift"] = collective.shift;
  if (!collective.reduce_op.empty()) op.attributes["reduce_op"] = collective.reduce_op;
  program.add_op(std::move(op));
  return output;
}

}  // namespace autopar
