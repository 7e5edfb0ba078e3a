// Gradients of Softmax and its kin.
#include "ops/grads/grads.hpp"

namespace autopar {

Result<InputGrads> softmax_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  GraphBuilder& to = context.to;
  const std::size_t axis = context.axis("axis", -1, context.in_shape(0).size());
  const ValueId y = context.out(0);
  const ValueId weighted = to.pointwise("Mul", {context.grad(), y});
  const ValueId sum = to.reduce("ReduceSum", weighted, {axis});
  return only_input(context, 0, to.pointwise("Sub", {weighted, to.pointwise("Mul", {y, sum})}));
}

Result<InputGrads> log_softmax_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  GraphBuilder& to = context.to;
  const std::size_t axis = context.axis("axis", -1, context.in_shape(0).size());
  const ValueId sum = to.reduce("ReduceSum", context.grad(), {axis});
  const ValueId shares = to.pointwise("Exp", {context.out(0)});
  return only_input(context, 0,
                    to.pointwise("Sub", {context.grad(), to.pointwise("Mul", {shares, sum})}));
}

}  // namespace autopar
