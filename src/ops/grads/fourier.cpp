// Gradients of Fourier transforms: they are linear, and the transform by the conjugate matrix is
// the inverse but for the length.
#include <algorithm>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

ValueId transform(GraphBuilder& to, ValueId from, std::size_t axis, bool inverse) {
  const auto number = static_cast<std::int64_t>(axis);
  Attributes attributes;
  attributes["inverse"] = std::int64_t{inverse ? 1 : 0};
  if (to.graph().opset < 20) {
    attributes["axis"] = number;
    return to.add("DFT", {from}, to.dtype(from), to.shape(from), attributes);
  }
  const ValueId at = to.constant(int64_tensor({}, {number}));
  return to.add("DFT", {from, ValueId(), at}, to.dtype(from), to.shape(from), attributes);
}

ValueId resized(GraphBuilder& to, ValueId from, std::size_t d, std::int64_t extent) {
  std::vector<std::int64_t> before(to.rank(from)), after(to.rank(from));
  after[d] = extent - to.shape(from)[d];
  return to.pad(from, before, after);
}

// What n places got whose transform has the gradient `from`; `parts`: 1, real ones, or 2.
ValueId transformed_back(GraphBuilder& to, ValueId from, std::size_t axis, std::int64_t n,
                         bool was_inverse, std::int64_t parts) {
  const ValueId whole = transform(to, resized(to, from, axis, n), axis, !was_inverse);
  const auto length = static_cast<double>(n);
  return to.slice(to.scaled(whole, was_inverse ? 1 / length : length), to.rank(from) - 1, 0, parts);
}

}  // namespace

Result<InputGrads> fourier_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  const bool inverse = context.op.int_attribute("inverse", 0) != 0;
  const bool onesided = context.op.int_attribute("onesided", 0) != 0;
  if (inverse && onesided) return no_gradient(context, "where it is inverse and one-sided");
  const Shape from = context.in_shape(0);
  std::int64_t at = context.op.int_attribute("axis", to.graph().opset >= 20 ? -2 : 1);
  if (context.in(2).valid()) {
    const auto given = context.ints(2);
    if (!given || given->size() != 1) return no_gradient(context, "where its axis is not constant");
    at = given->front();
  }
  const auto axis =
      static_cast<std::size_t>(at < 0 ? at + static_cast<std::int64_t>(from.size()) : at);
  std::int64_t n = onesided ? from[axis] : context.out_shape(0)[axis];
  if (onesided && context.in(1).valid()) {
    const auto given = context.ints(1);
    if (!given || given->size() != 1) {
      return no_gradient(context, "where its length is not constant");
    }
    n = given->front();
  }
  const ValueId back = transformed_back(to, context.grad(), axis, n, inverse, from.back());
  return only_input(context, 0, resized(to, back, axis, from[axis]));
}

// signal [b, length, 1 or 2] (or [b, length]), step, window [n], n -> [b, frames, bins, 2]
Result<InputGrads> short_fourier_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  const auto step = context.ints(1), length = context.ints(3);
  if (!step || step->size() != 1 || (context.in(3).valid() && (!length || length->size() != 1))) {
    return no_gradient(context, "where its step or frame length is not constant");
  }
  const Shape signal = context.in_shape(0);
  const std::int64_t parts = signal.size() == 3 ? signal[2] : 1;
  const std::int64_t n = context.in(2).valid() ? context.in_shape(2)[0] : length->front();
  const std::int64_t batch = signal[0], frames = context.out_shape(0)[1];
  const DType dtype = to.dtype(context.in(0));
  const ValueId weighted = transformed_back(to, context.grad(), 2, n, false, parts);
  std::vector<std::int64_t> places;
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    for (std::int64_t i = 0; i < n; ++i) places.push_back(frame * step->front() + i);
  }
  if (context.wants(0)) {
    ValueId values = weighted;
    if (context.in(2).valid()) {
      values = to.pointwise("Mul", {values, to.reshape(context.in(2), {n, 1})});
    }
    const ValueId rows = to.reshape(to.transpose(values, {1, 2, 0, 3}), {frames * n, batch, parts});
    const Shape table = {signal[1], batch, parts};
    const ValueId index = to.constant(int64_tensor({frames * n, 1}, places));
    const ValueId sum = scattered_sum(to, "ScatterND", table, index, rows);
    grads[0] = to.reshape(to.transpose(sum, {1, 0, 2}), signal);
  }
  if (context.wants(2)) {
    const ValueId index = to.constant(int64_tensor({frames, n}, places));
    const ValueId read =
        to.add("Gather", {to.reshape(context.in(0), {batch, signal[1], parts}), index}, dtype,
               {batch, frames, n, parts}, {{"axis", std::int64_t{1}}});
    grads[2] = to.reduce("ReduceSum", to.pointwise("Mul", {read, weighted}), {0, 1, 3}, false);
  }
  return grads;
}

}  // namespace autopar
