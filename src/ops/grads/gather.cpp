// Gradients of reading by index: what was read is added where it was read.
#include "ops/grads/grads.hpp"

namespace autopar {

Result<InputGrads> gather_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid() || !context.wants(0)) return InputGrads(2);
  const Shape data = context.in_shape(0);
  const Shape indices = context.in_shape(1);
  const std::size_t axis = context.axis("axis", 0, data.size());
  // The dimensions of the indices first, then those of the data without the axis.
  std::vector<std::size_t> forth, back;
  for (std::size_t i = 0; i < indices.size(); ++i) forth.push_back(axis + i);
  for (std::size_t d = 0; d < data.size() - 1; ++d) {
    forth.push_back(d < axis ? d : d + indices.size());
  }
  Shape table;
  table.push_back(data[axis]);
  for (std::size_t d = 0; d < data.size(); ++d) {
    if (d != axis) table.push_back(data[d]);
  }
  for (std::size_t d = 0; d < data.size(); ++d)
    back.push_back(d == axis ? 0 : d < axis ? d + 1 : d);
  const ValueId rows = to.transpose(context.grad(), forth);
  const ValueId places = to.unsqueeze(to.cast(context.in(1), DType::kInt64), indices.size());
  const DType dtype = to.dtype(context.grad());
  const ValueId sum = to.add("ScatterND", {to.filled(dtype, table, 0), places, rows}, dtype, table,
                             {{"reduction", std::string("add")}});
  return only_input(context, 0, to.transpose(sum, back));
}

Result<InputGrads> gather_elements_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid() || !context.wants(0)) return InputGrads(2);
  const Shape data = context.in_shape(0);
  const std::size_t axis = context.axis("axis", 0, data.size());
  const DType dtype = to.dtype(context.grad());
  const ValueId zeros = to.filled(dtype, data, 0);
  return only_input(
      context, 0,
      to.add("ScatterElements", {zeros, context.in(1), context.grad()}, dtype, data,
             {{"axis", static_cast<std::int64_t>(axis)}, {"reduction", std::string("add")}}));
}

}  // namespace autopar
