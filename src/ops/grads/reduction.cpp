// Gradients of reductions: what was summed is repeated.
#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// A value of the output's shape with the reduced dimensions there again, of extent 1.
ValueId with_dims(const GradContext& context, ValueId value) {
  if (context.op.int_attribute("keepdims", 1) != 0) return value;
  const Shape whole = context.in_shape(0);
  std::vector<std::int64_t> axes = context.op.ints_attribute("axes");
  if (const auto given = context.ints(1)) axes = *given;
  Shape shape = whole;
  if (axes.empty() && context.op.int_attribute("noop_with_empty_axes", 0) == 0) {
    shape.assign(whole.size(), 1);
  }
  for (std::int64_t axis : axes) {
    shape[static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(whole.size())
                                            : axis)] = 1;
  }
  return context.to.reshape(value, shape);
}

std::vector<std::size_t> reduced_axes(const GradContext& context, ValueId kept) {
  std::vector<std::size_t> axes;
  const Shape whole = context.in_shape(0);
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (context.to.shape(kept)[d] != whole[d]) axes.push_back(d);
  }
  return axes;
}

ValueId repeated(const GradContext& context, ValueId value) {
  return context.to.broadcast_to(value, context.in_shape(0));
}

// The gradient and the output with the reduced dimensions there.
struct Parts {
  GraphBuilder& to;
  ValueId x, y, g;
  ValueId number(double n) const { return to.scalar(to.dtype(x), n); }
};
Parts parts_of(const GradContext& context) {
  return {context.to, context.in(0), with_dims(context, context.out(0)),
          with_dims(context, context.grad())};
}

Result<InputGrads> nothing(const GradContext& context) {
  return InputGrads(context.op.inputs.size());
}

}  // namespace

Result<InputGrads> reduce_sum_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  return only_input(context, 0, repeated(context, with_dims(context, context.grad())));
}

Result<InputGrads> reduce_mean_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const double whole = static_cast<double>(element_count(context.in_shape(0)));
  const double part = static_cast<double>(element_count(context.out_shape(0)));
  const ValueId share = context.to.scaled(context.grad(), whole > 0 ? part / whole : 1);
  return only_input(context, 0, repeated(context, with_dims(context, share)));
}

Result<InputGrads> reduce_square_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const Parts p = parts_of(context);
  return only_input(context, 0, p.to.pointwise("Mul", {p.x, p.to.scaled(p.g, 2)}));
}

Result<InputGrads> reduce_l1_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const Parts p = parts_of(context);
  return only_input(context, 0, p.to.pointwise("Mul", {p.to.pointwise("Sign", {p.x}), p.g}));
}

// Where the norm is 0 the gradient is, too.
Result<InputGrads> reduce_l2_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const Parts p = parts_of(context);
  const ValueId none = p.to.test("Equal", {p.y, p.number(0)});
  const ValueId norm = p.to.pointwise("Where", {none, p.number(1), p.y});
  return only_input(context, 0, p.to.pointwise("Mul", {p.x, p.to.pointwise("Div", {p.g, norm})}));
}

Result<InputGrads> reduce_log_sum_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const Parts p = parts_of(context);
  const ValueId grad = p.to.pointwise("Div", {p.g, p.to.pointwise("Exp", {p.y})});
  return only_input(context, 0, repeated(context, grad));
}

Result<InputGrads> reduce_log_sum_exp_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const Parts p = parts_of(context);
  const ValueId share = p.to.pointwise("Exp", {p.to.pointwise("Sub", {p.x, p.y})});
  return only_input(context, 0, p.to.pointwise("Mul", {share, p.g}));
}

// Elements that are equally large share the gradient.
Result<InputGrads> reduce_extremum_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const Parts p = parts_of(context);
  const std::vector<std::size_t> axes = reduced_axes(context, p.g);
  // Runtimes without kernels of 16 bits compute in 32, and round where they like: only the extremum
  // of the elements as they are read here is sure to be one of them.
  const bool is_rounded = size_of(p.to.dtype(p.x)) == 2;
  const ValueId y = is_rounded ? p.to.reduce(context.op.type, p.x, axes) : p.y;
  const ValueId hit = p.to.cast(p.to.test("Equal", {p.x, y}), p.to.dtype(p.x));
  const ValueId count = p.to.reduce("ReduceSum", hit, axes);
  return only_input(context, 0, p.to.pointwise("Mul", {hit, p.to.pointwise("Div", {p.g, count})}));
}

// The product of the others; also where one element, or more, is 0.
Result<InputGrads> reduce_product_grad(const GradContext& context) {
  if (!context.grad().valid()) return nothing(context);
  const Parts p = parts_of(context);
  GraphBuilder& to = p.to;
  const std::vector<std::size_t> axes = reduced_axes(context, p.g);
  const ValueId zero = p.number(0), one = p.number(1);
  const ValueId is_zero = to.test("Equal", {p.x, zero});
  const ValueId safe = to.pointwise("Where", {is_zero, one, p.x});
  const ValueId product = to.reduce("ReduceProd", safe, axes);
  const ValueId zeros = to.reduce("ReduceSum", to.cast(is_zero, to.dtype(p.x)), axes);
  const ValueId none = to.test("Equal", {zeros, zero});
  const ValueId single = to.test("Equal", {zeros, one});
  const ValueId others = to.pointwise("Where", {none, to.pointwise("Div", {product, safe}), zero});
  const ValueId rest = to.pointwise("Where", {single, product, zero});
  const ValueId slope = to.pointwise("Where", {is_zero, rest, others});
  return only_input(context, 0, to.pointwise("Mul", {slope, p.g}));
}

}  // namespace autopar
