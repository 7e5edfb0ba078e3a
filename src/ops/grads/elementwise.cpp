// Gradients of elementwise ops that no formula of the table tells.
#include <cmath>
#include <numbers>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// Repeated dimensions are summed.
void put(const GradContext& context, InputGrads& grads, std::size_t port, ValueId grad) {
  if (context.wants(port)) grads[port] = context.to.sum_to(grad, context.in_shape(port));
}

}  // namespace

Result<InputGrads> gelu_grad(const GradContext& context) {
  if (context.op.string_attribute("approximate", "none") == "none") {
    return formula_gradients(context,
                             "g * (0.5 * (1 + Erf(x * 0.7071067811865476)) + "
                             "x * 0.3989422804014327 * Exp(x * x * -0.5))");
  }
  // y = x (1 + t) / 2, t = tanh(a (x + b x^3))
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(1);
  const DType dtype = to.dtype(context.in(0));
  const auto number = [&](double n) { return to.scalar(dtype, n); };
  const ValueId x = context.in(0);
  const double a = std::sqrt(2 / std::numbers::pi), b = 0.044715;
  const ValueId square = to.pointwise("Mul", {x, x});
  const ValueId inner = to.pointwise("Add", {to.scaled(square, a * b), number(a)});
  const ValueId t = to.pointwise("Tanh", {to.pointwise("Mul", {inner, x})});
  const ValueId slope = to.pointwise("Add", {to.scaled(square, 3 * a * b), number(a)});
  const ValueId steep = to.pointwise("Sub", {number(1), to.pointwise("Mul", {t, t})});
  const ValueId bend = to.pointwise("Mul", {to.pointwise("Mul", {x, steep}), slope});
  const ValueId sum = to.pointwise("Add", {to.pointwise("Add", {t, number(1)}), bend});
  return only_input(context, 0, to.pointwise("Mul", {context.grad(), to.scaled(sum, 0.5)}));
}

Result<InputGrads> pow_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  InputGrads grads(2);
  if (!context.grad().valid()) return grads;
  const ValueId x = context.in(0);
  const ValueId exponent = to.cast(context.in(1), to.dtype(x));
  const ValueId g = context.grad();
  if (context.wants(0)) {
    const ValueId one = to.scalar(to.dtype(x), 1);
    const ValueId power = to.pointwise("Pow", {x, to.pointwise("Sub", {exponent, one})});
    const ValueId slope = to.pointwise("Mul", {exponent, power});
    // x^0 is 1 everywhere, also where x^-1 is not finite.
    const ValueId zero = to.scalar(to.dtype(x), 0);
    const ValueId flat = to.test("Equal", {exponent, zero});
    const ValueId safe = to.pointwise("Where", {flat, zero, slope});
    put(context, grads, 0, to.pointwise("Mul", {g, safe}));
  }
  if (context.wants(1)) {
    // 0^p does not change with p.
    const ValueId zero = to.scalar(to.dtype(x), 0);
    const ValueId some = to.test("Greater", {x, zero});
    const ValueId one = to.scalar(to.dtype(x), 1);
    const ValueId log = to.pointwise("Log", {to.pointwise("Where", {some, x, one})});
    const ValueId slope = to.pointwise("Mul", {context.out(0), log});
    put(context, grads, 1, to.pointwise("Mul", {g, slope}));
  }
  return grads;
}

// Inputs that are equally large share the gradient.
Result<InputGrads> extremum_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  const std::size_t count = context.op.inputs.size();
  InputGrads grads(count);
  if (!context.grad().valid()) return grads;
  const DType dtype = to.dtype(context.out(0));
  if (count == 1) return only_input(context, 0, context.grad());
  std::vector<ValueId> hits, inputs;
  for (std::size_t i = 0; i < count; ++i) inputs.push_back(context.in(i));
  // As reduce_extremum_grad().
  const bool is_rounded = size_of(dtype) == 2;
  const ValueId most = is_rounded ? to.pointwise(context.op.type, inputs) : context.out(0);
  ValueId sum;
  for (std::size_t i = 0; i < count; ++i) {
    hits.push_back(to.cast(to.test("Equal", {inputs[i], most}), dtype));
    sum = sum.valid() ? to.pointwise("Add", {sum, hits[i]}) : hits[i];
  }
  const ValueId share = to.pointwise("Div", {context.grad(), sum});
  for (std::size_t i = 0; i < count; ++i) {
    put(context, grads, i, to.pointwise("Mul", {share, hits[i]}));
  }
  return grads;
}

// Within the bounds, and on them, what goes in comes out; else a bound does.
Result<InputGrads> clip_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  const ValueId x = context.in(0), g = context.grad();
  const ValueId zero = to.scalar(to.dtype(x), 0);
  ValueId below, above;  // bool; invalid: nowhere
  if (context.in(1).valid()) below = to.test("Less", {x, context.in(1)});
  if (context.in(2).valid()) above = to.test("Greater", {x, context.in(2)});
  ValueId inside = g;
  if (below.valid()) inside = to.pointwise("Where", {below, zero, inside});
  if (above.valid()) inside = to.pointwise("Where", {above, zero, inside});
  put(context, grads, 0, inside);
  if (below.valid()) put(context, grads, 1, to.pointwise("Where", {below, g, zero}));
  if (above.valid()) put(context, grads, 2, to.pointwise("Where", {above, g, zero}));
  return grads;
}

Result<InputGrads> cast_grad(const GradContext& context) {
  if (!context.grad().valid() || !context.wants(0)) return InputGrads(context.op.inputs.size());
  return only_input(context, 0, context.to.cast(context.grad(), context.to.dtype(context.in(0))));
}

Result<InputGrads> mean_grad(const GradContext& context) {
  const std::size_t count = context.op.inputs.size();
  InputGrads grads(count);
  if (!context.grad().valid()) return grads;
  const ValueId share = context.to.scaled(context.grad(), 1 / static_cast<double>(count));
  for (std::size_t i = 0; i < count; ++i) put(context, grads, i, share);
  return grads;
}

}  // namespace autopar
