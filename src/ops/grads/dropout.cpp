// The gradient of Dropout: the mask of the forward op, whatever has drawn it.
#include "ops/grads/grads.hpp"

namespace autopar {

Result<InputGrads> dropout_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  const ValueId g = context.grad();
  if (!g.valid()) return InputGrads(context.op.inputs.size());
  const auto training = context.ints(2);
  const bool told = training && !training->empty();
  if (!context.in(2).valid() || (told && (*training)[0] == 0)) return only_input(context, 0, g);
  const DType dtype = to.dtype(g);
  const ValueId mask = context.output(1, DType::kBool, to.shape(g));
  const ValueId one = to.scalar(dtype, 1);
  const ValueId ratio =
      context.in(1).valid() ? to.reshape(to.cast(context.in(1), dtype), {}) : to.scalar(dtype, 0.5);
  ValueId scale = to.pointwise("Div", {one, to.pointwise("Sub", {one, ratio})});
  if (!told) scale = to.pointwise("Where", {to.reshape(context.in(2), {}), scale, one});
  const ValueId scaled = to.pointwise("Mul", {g, scale});
  return only_input(context, 0, to.pointwise("Where", {mask, scaled, to.scalar(dtype, 0)}));
}

}  // namespace autopar
