// Gradients of normalisations. With x' = (x - mean) * inverse, where inverse is 1 / deviation, and
// g the gradient by x':  inverse * (g - mean(g) - x' * mean(g * x')), means over what is
// normalised. Statistics and sums of 16-bit floats are in float32.
#include <algorithm>
#include <numeric>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

using Dims = std::vector<std::size_t>;

Dims dims_from(std::size_t first, std::size_t rank) {
  Dims dims(rank - std::min(first, rank));
  std::iota(dims.begin(), dims.end(), first);
  return dims;
}

// All dimensions but that of the channels.
Dims dims_but_channels(std::size_t rank) {
  Dims dims = dims_from(1, rank);
  dims[0] = 0;
  return dims;
}

double count_of(const Shape& shape, const Dims& dims) {
  double count = 1;
  for (std::size_t d : dims) count *= static_cast<double>(shape[d]);
  return count;
}

// A vector of channels against [n, c, ..].
ValueId along_channels(GraphBuilder& to, ValueId vector, std::size_t rank, DType dtype) {
  Shape shape(rank - 1, 1);
  shape[0] = element_count(to.shape(vector));
  return to.cast(to.reshape(vector, shape), dtype);
}

ValueId difference(GraphBuilder& to, ValueId a, ValueId b) { return to.pointwise("Sub", {a, b}); }
ValueId product(GraphBuilder& to, ValueId a, ValueId b) { return to.pointwise("Mul", {a, b}); }
ValueId mean_over(GraphBuilder& to, ValueId value, const Dims& dims) {
  return to.reduce("ReduceMean", value, dims);
}

// 1 / sqrt(variance + epsilon)
ValueId inverse_of(GraphBuilder& to, ValueId variance, double epsilon) {
  const ValueId shifted = to.pointwise("Add", {variance, to.scalar(to.dtype(variance), epsilon)});
  return to.pointwise("Reciprocal", {to.pointwise("Sqrt", {shifted})});
}

// What is normalised, in the type of the statistics.
struct Normal {
  ValueId value;    // (x - mean) * inverse; of RMSNormalization x * inverse
  ValueId inverse;  // 1 / deviation, of extent 1 over dims
  Dims dims;
};

Normal normalised(GraphBuilder& to, ValueId x, const Dims& dims, double epsilon) {
  const ValueId centred = difference(to, x, mean_over(to, x, dims));
  const ValueId variance = mean_over(to, product(to, centred, centred), dims);
  const ValueId inverse = inverse_of(to, variance, epsilon);
  return {product(to, centred, inverse), inverse, dims};
}

// By x, from the gradient by the normalised values; `centred`: the mean was taken off.
ValueId through_statistics(GraphBuilder& to, const Normal& normal, ValueId g, bool centred) {
  const ValueId along = mean_over(to, product(to, g, normal.value), normal.dims);
  ValueId rest = difference(to, g, product(to, normal.value, along));
  if (centred) rest = difference(to, rest, mean_over(to, g, normal.dims));
  return product(to, rest, normal.inverse);
}

// Per channel (dimension 1), as input `port` is.
ValueId channel_sum(const GradContext& context, ValueId value, std::size_t port) {
  GraphBuilder& to = context.to;
  const ValueId sum = to.reduce("ReduceSum", value, dims_but_channels(to.rank(value)));
  return to.cast(to.reshape(sum, context.in_shape(port)), to.dtype(context.in(port)));
}

// The same, as a scale that is broadcast from the last dimensions.
ValueId aligned_sum(const GradContext& context, ValueId value, std::size_t port) {
  GraphBuilder& to = context.to;
  return to.cast(to.sum_to(value, context.in_shape(port)), to.dtype(context.in(port)));
}

ValueId as_input(const GradContext& context, ValueId grad, std::size_t port = 0) {
  return context.to.cast(grad, context.to.dtype(context.in(port)));
}

double epsilon_of(const GradContext& context) {
  return context.op.float_attribute("epsilon", 1e-5);
}

// Mean and inverse deviation are outputs of the op, of the type in which it takes them.
Normal layer_normal(const GradContext& context, ValueId x, const Dims& dims) {
  GraphBuilder& to = context.to;
  const DType stash =
      context.op.int_attribute("stash_type", 1) == 16 ? DType::kBFloat16 : DType::kFloat32;
  const DType wide = to.dtype(x);
  if (wide == DType::kFloat64) return normalised(to, x, dims, epsilon_of(context));
  Shape statistics = to.shape(x);
  for (std::size_t d : dims) statistics[d] = 1;
  const ValueId mean = to.cast(context.output(1, stash, statistics), wide);
  const ValueId inverse = to.cast(context.output(2, stash, statistics), wide);
  return {product(to, difference(to, x, mean), inverse), inverse, dims};
}

// What the gradients of the mean and of the inverse deviation add to that by x.
ValueId with_statistics(const GradContext& context, const Normal& normal, ValueId grad) {
  GraphBuilder& to = context.to;
  const double count = count_of(to.shape(normal.value), normal.dims);
  if (context.grad(1).valid()) {
    const ValueId mean = to.cast(context.grad(1), to.dtype(grad));
    grad = to.pointwise("Add", {grad, to.scaled(mean, 1 / count)});
  }
  if (context.grad(2).valid()) {
    const ValueId steep = product(to, normal.inverse, normal.inverse);
    const ValueId inverse = to.cast(context.grad(2), to.dtype(grad));
    const ValueId share = to.scaled(product(to, steep, inverse), 1 / count);
    grad = difference(to, grad, product(to, normal.value, share));
  }
  return grad;
}

// Scale and bias per channel after a normalisation that `normal` tells, of x in its own shape.
InputGrads affine_grads(const GradContext& context, const Normal& normal, ValueId g) {
  GraphBuilder& to = context.to;
  InputGrads grads(context.op.inputs.size());
  if (context.wants(0)) {
    const ValueId scale = along_channels(to, context.in(1), to.rank(g), to.dtype(g));
    const ValueId x = through_statistics(to, normal, product(to, g, scale), true);
    grads[0] = as_input(context, x);
  }
  if (context.wants(1)) grads[1] = channel_sum(context, product(to, g, normal.value), 1);
  if (context.wants(2)) grads[2] = channel_sum(context, g, 2);
  return grads;
}

}  // namespace

Result<InputGrads> layer_norm_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  const std::size_t rank = context.in_shape(0).size();
  const ValueId x = to.cast(context.in(0), widened(to.dtype(context.in(0))));
  const ValueId g = to.cast(grad_or_zero(context), to.dtype(x));
  const Normal normal = layer_normal(context, x, dims_from(context.axis("axis", -1, rank), rank));
  InputGrads grads(context.op.inputs.size());
  if (context.wants(0)) {
    const ValueId scaled = product(to, g, to.cast(context.in(1), to.dtype(x)));
    const ValueId grad = through_statistics(to, normal, scaled, true);
    grads[0] = as_input(context, with_statistics(context, normal, grad));
  }
  if (context.wants(1)) grads[1] = aligned_sum(context, product(to, g, normal.value), 1);
  if (context.wants(2)) grads[2] = aligned_sum(context, g, 2);
  return grads;
}

Result<InputGrads> rms_norm_grad(const GradContext& context) {
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  GraphBuilder& to = context.to;
  const std::size_t rank = context.in_shape(0).size();
  const ValueId x = to.cast(context.in(0), widened(to.dtype(context.in(0))));
  const ValueId g = to.cast(context.grad(), to.dtype(x));
  const Dims dims = dims_from(context.axis("axis", -1, rank), rank);
  const ValueId square = mean_over(to, product(to, x, x), dims);
  const ValueId inverse = inverse_of(to, square, epsilon_of(context));
  const Normal normal = {product(to, x, inverse), inverse, dims};
  if (context.wants(0)) {
    const ValueId scaled = product(to, g, to.cast(context.in(1), to.dtype(x)));
    grads[0] = as_input(context, through_statistics(to, normal, scaled, false));
  }
  if (context.wants(1)) grads[1] = aligned_sum(context, product(to, g, normal.value), 1);
  return grads;
}

namespace {

// In training: the statistics of the batch, and the running ones that are made of them.
Result<InputGrads> batch_training_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  const ValueId x = to.cast(context.in(0), widened(to.dtype(context.in(0))));
  const ValueId g = to.cast(grad_or_zero(context), to.dtype(x));
  const std::size_t rank = to.rank(x);
  const Dims dims = dims_but_channels(rank);
  const Normal normal = normalised(to, x, dims, epsilon_of(context));
  InputGrads grads = affine_grads(context, normal, g);
  const double momentum = context.op.float_attribute("momentum", 0.9);
  const double fresh = (1 - momentum) / count_of(to.shape(x), dims);
  const auto running = [&](std::size_t port, double factor) {
    return to.scaled(along_channels(to, context.grad(port), rank, to.dtype(x)), factor);
  };
  for (std::size_t port : {std::size_t{1}, std::size_t{2}}) {
    if (!context.grad(port).valid()) continue;
    if (context.wants(port + 2)) {
      grads[port + 2] = as_input(context, to.scaled(context.grad(port), momentum), port + 2);
    }
    if (!context.wants(0)) continue;
    // The variance grows with 2 (x - mean) / count.
    const ValueId centred =
        port == 1 ? ValueId() : to.pointwise("Div", {normal.value, normal.inverse});
    const ValueId more =
        port == 1 ? running(1, fresh) : product(to, centred, running(2, 2 * fresh));
    grads[0] = to.pointwise("Add", {grads[0], as_input(context, more)});
  }
  return grads;
}

}  // namespace

Result<InputGrads> batch_norm_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (context.op.int_attribute("training_mode", 0) != 0) return batch_training_grad(context);
  if (context.op.outputs.size() > 1) {
    return no_gradient(context, "in training before opset 14; convert the model");
  }
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  const DType wide = widened(to.dtype(context.in(0)));
  const std::size_t rank = context.in_shape(0).size();
  const ValueId g = to.cast(context.grad(), wide);
  const auto channels = [&](std::size_t port) {
    return along_channels(to, context.in(port), rank, wide);
  };
  const ValueId inverse = inverse_of(to, channels(4), epsilon_of(context));
  const ValueId factor = product(to, channels(1), inverse);
  if (context.wants(0)) grads[0] = as_input(context, product(to, g, factor));
  if (context.wants(2)) grads[2] = channel_sum(context, g, 2);
  if (context.wants(3)) {
    grads[3] = channel_sum(context, to.pointwise("Neg", {product(to, g, factor)}), 3);
  }
  if (!context.wants(1) && !context.wants(4)) return grads;
  const ValueId centred = difference(to, to.cast(context.in(0), wide), channels(3));
  const ValueId along = product(to, product(to, g, centred), inverse);
  if (context.wants(1)) grads[1] = channel_sum(context, along, 1);
  if (context.wants(4)) {
    const ValueId steep = to.scaled(product(to, factor, inverse), -0.5);
    grads[4] = channel_sum(context, product(to, along, steep), 4);
  }
  return grads;
}

Result<InputGrads> instance_norm_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  GraphBuilder& to = context.to;
  const ValueId x = to.cast(context.in(0), widened(to.dtype(context.in(0))));
  const ValueId g = to.cast(context.grad(), to.dtype(x));
  const Normal normal = normalised(to, x, dims_from(2, to.rank(x)), epsilon_of(context));
  return affine_grads(context, normal, g);
}

// Scale and bias are per channel, or per group in the op's first version. What is normalised is
// [n, group, channel of the group, ..].
Result<InputGrads> group_norm_grad(const GradContext& context) {
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  GraphBuilder& to = context.to;
  const Shape shape = context.in_shape(0);
  const std::int64_t groups = context.op.int_attribute("num_groups", 1);
  const bool per_channel = context.in_shape(1) == Shape{shape[1]};
  Shape grouped = shape;
  grouped[1] = groups;
  grouped.insert(grouped.begin() + 2, shape[1] / groups);
  const DType wide = widened(to.dtype(context.in(0)));
  const ValueId x = to.reshape(to.cast(context.in(0), wide), grouped);
  const ValueId g = to.reshape(to.cast(context.grad(), wide), grouped);
  const Normal normal = normalised(to, x, dims_from(2, grouped.size()), epsilon_of(context));
  Shape channels(grouped.size() - 1, 1);
  channels[0] = groups;
  if (per_channel) channels[1] = shape[1] / groups;
  if (context.wants(0)) {
    const ValueId scale = to.cast(to.reshape(context.in(1), channels), wide);
    const ValueId grad = through_statistics(to, normal, product(to, g, scale), true);
    grads[0] = as_input(context, to.reshape(grad, shape));
  }
  const auto summed = [&](ValueId value, std::size_t port) {
    const ValueId sum = to.sum_to(value, channels);
    return as_input(context, to.reshape(sum, context.in_shape(port)), port);
  };
  if (context.wants(1)) grads[1] = summed(product(to, g, normal.value), 1);
  if (context.wants(2)) grads[2] = summed(g, 2);
  return grads;
}

// y = x / |x|; where the norm is 0, y is, and the gradient is taken to be.
Result<InputGrads> lp_norm_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  GraphBuilder& to = context.to;
  const ValueId x = context.in(0), y = context.out(0), g = context.grad();
  const std::size_t axis = context.axis("axis", -1, to.rank(x));
  const bool first = context.op.int_attribute("p", 2) == 1;
  const ValueId norm = to.reduce(first ? "ReduceL1" : "ReduceL2", x, {axis});
  const ValueId none = to.test("Equal", {norm, to.scalar(to.dtype(x), 0)});
  const ValueId safe = to.pointwise("Where", {none, to.scalar(to.dtype(x), 1), norm});
  const ValueId along = to.reduce("ReduceSum", product(to, g, y), {axis});
  const ValueId slope = first ? to.pointwise("Sign", {x}) : y;
  const ValueId rest = difference(to, g, product(to, slope, along));
  const ValueId grad = to.pointwise("Div", {rest, safe});
  return only_input(context, 0, to.pointwise("Where", {none, to.scalar(to.dtype(x), 0), grad}));
}

// y = (x - mean) / (deviation + 1e-9)
Result<InputGrads> mean_variance_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  GraphBuilder& to = context.to;
  Dims dims;
  for (std::int64_t axis : context.op.ints_attribute("axes", {0, 2, 3})) {
    const auto rank = static_cast<std::int64_t>(context.in_shape(0).size());
    dims.push_back(static_cast<std::size_t>(axis < 0 ? axis + rank : axis));
  }
  const ValueId x = to.cast(context.in(0), widened(to.dtype(context.in(0))));
  const Normal normal = normalised(to, x, dims, 1e-18);
  const ValueId g = to.cast(context.grad(), to.dtype(x));
  return only_input(context, 0, as_input(context, through_statistics(to, normal, g, true)));
}

// y = x * d^-beta, d = bias + alpha / size * (sum of squares over a window of channels)
Result<InputGrads> local_response_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  GraphBuilder& to = context.to;
  const Op& op = context.op;
  const Shape shape = context.in_shape(0);
  const std::int64_t size = op.int_attribute("size", 1);
  const double alpha = op.float_attribute("alpha", 1e-4), beta = op.float_attribute("beta", 0.75);
  const DType wide = widened(to.dtype(context.in(0)));
  const Shape plane = {shape[0], 1, shape[1], element_count({shape.begin() + 2, shape.end()})};
  // Channels beyond the ends count as zeros; the sum over `size` of them is `size` averages.
  const auto window_mean = [&](ValueId value, std::int64_t before) {
    const std::vector<std::int64_t> pads = {before, 0, size - 1 - before, 0};
    return to.add("AveragePool", {value}, wide, plane,
                  {{"kernel_shape", std::vector<std::int64_t>{size, 1}},
                   {"pads", pads},
                   {"count_include_pad", std::int64_t{1}}});
  };
  const auto flat = [&](ValueId value) { return to.reshape(to.cast(value, wide), plane); };
  const ValueId x = flat(context.in(0)), y = flat(context.out(0)), g = flat(context.grad());
  const std::int64_t before = (size - 1) / 2;
  const ValueId mean = window_mean(product(to, x, x), before);
  const ValueId bias = to.scalar(wide, op.float_attribute("bias", 1));
  const ValueId d = to.pointwise("Add", {to.scaled(mean, alpha), bias});
  const ValueId direct = to.pointwise("Mul", {g, to.pointwise("Pow", {d, to.scalar(wide, -beta)})});
  const ValueId share = to.pointwise("Div", {product(to, g, y), d});
  // A channel is in the windows of those that have it: the same window turned round.
  const ValueId sum = window_mean(share, size - 1 - before);
  const ValueId rest = product(to, to.scaled(x, 2 * alpha * beta), sum);
  return only_input(context, 0, as_input(context, to.reshape(difference(to, direct, rest), shape)));
}

}  // namespace autopar
