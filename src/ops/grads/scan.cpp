// Gradients of scans: scans the other way.
#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

ValueId scanned_back(const GradContext& context, ValueId from) {
  GraphBuilder& to = context.to;
  Attributes attributes = context.op.attributes;
  attributes["reverse"] = std::int64_t{context.op.int_attribute("reverse", 0) != 0 ? 0 : 1};
  return to.add("CumSum", {from, context.in(1)}, to.dtype(from), to.shape(from), attributes);
}

}  // namespace

Result<InputGrads> cumulative_sum_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(2);
  return only_input(context, 0, scanned_back(context, context.grad()));
}

// With y the products, dx = (sum of what follows of g y) / x. The first 0 of a line gets the same
// with a 1 in its place, what follows it gets nothing.
Result<InputGrads> cumulative_product_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  const ValueId g = context.grad(), x = context.in(0);
  if (!g.valid()) return InputGrads(2);
  const DType dtype = to.dtype(x);
  const Shape shape = to.shape(x);
  const ValueId zero = to.scalar(dtype, 0), one = to.scalar(dtype, 1);
  const ValueId is_zero = to.test("Equal", {x, zero});
  Attributes direction;
  direction["reverse"] = context.op.int_attribute("reverse", 0);
  const ValueId zeros =
      to.add("CumSum", {to.cast(is_zero, dtype), context.in(1)}, dtype, shape, direction);
  const ValueId first = to.test("And", {is_zero, to.test("Equal", {zeros, one})});
  const ValueId mended = to.pointwise("Where", {first, one, x});
  const ValueId products =
      to.add("CumProd", {mended, context.in(1)}, dtype, shape, context.op.attributes);
  const auto following = [&](ValueId y) {
    return scanned_back(context, to.pointwise("Mul", {g, y}));
  };
  const ValueId safe = to.pointwise("Where", {is_zero, one, x});
  const ValueId usual = to.pointwise("Div", {following(context.out(0)), safe});
  const ValueId otherwise = to.pointwise("Where", {is_zero, zero, usual});
  return only_input(context, 0, to.pointwise("Where", {first, following(products), otherwise}));
}

}  // namespace autopar
