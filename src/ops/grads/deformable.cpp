// Gradient of DeformConv: a convolution of images that are read at places that an input moves.
#include "ops/grads/grads.hpp"
#include "ops/grads/sampling.hpp"

namespace autopar {
namespace {

std::int64_t entry(const GradContext& context, const char* name, std::size_t d,
                   std::int64_t fallback) {
  const std::vector<std::int64_t> values = context.op.ints_attribute(name);
  return d < values.size() ? values[d] : fallback;
}

// Of one op; every offset group is an image of its own.
struct Deformed {
  GraphBuilder& to;
  DType dtype;
  std::int64_t images, per_image;            // offset groups of all images, their channels
  std::int64_t kernel, out;                  // elements
  std::int64_t kernel_columns, out_columns;  // extents of the last dimension
  std::int64_t places() const { return kernel * out; }
};

Deformed form_of(const GradContext& context) {
  const Shape x = context.in_shape(0), w = context.in_shape(1), y = context.out_shape(0);
  const std::int64_t groups = context.op.int_attribute("offset_group", 1);
  const DType dtype = widened(context.to.dtype(context.in(0)));
  return {context.to, dtype, x[0] * groups, x[1] / groups, w[2] * w[3], y[2] * y[3], w[3], y[3]};
}

// Places of dimension `d` without offsets: [1, kernel, out].
Tensor regular_places(const GradContext& context, const Deformed& form, std::size_t d) {
  Tensor tensor{form.dtype, {1, form.kernel, form.out}, {}};
  const std::int64_t stride = entry(context, "strides", d, 1);
  const std::int64_t dilation = entry(context, "dilations", d, 1);
  const std::int64_t before = entry(context, "pads", d, 0);
  for (std::int64_t k = 0; k < form.kernel; ++k) {
    for (std::int64_t o = 0; o < form.out; ++o) {
      const std::int64_t k_d = d == 0 ? k / form.kernel_columns : k % form.kernel_columns;
      const std::int64_t o_d = d == 0 ? o / form.out_columns : o % form.out_columns;
      const std::int64_t place = o_d * stride - before + k_d * dilation;
      tensor.bytes += scalar_tensor(form.dtype, static_cast<double>(place)).bytes;
    }
  }
  return tensor;
}

// [images, per image, places], where the offsets say.
Sampler sampler_of(const GradContext& context, const Deformed& form) {
  GraphBuilder& to = form.to;
  const Shape x = context.in_shape(0);
  const ValueId offsets =
      to.reshape(to.cast(context.in(2), form.dtype), {form.images, form.kernel, 2, form.out});
  std::vector<ValueId> places;
  for (std::size_t d = 0; d < 2; ++d) {
    const auto k = static_cast<std::int64_t>(d);
    const ValueId moved =
        to.reshape(to.slice(offsets, 2, k, k + 1), {form.images, form.kernel, form.out});
    const ValueId regular = to.constant(regular_places(context, form, d));
    places.push_back(
        to.reshape(to.pointwise("Add", {moved, regular}), {form.images, 1, form.places()}));
  }
  const ValueId image =
      to.reshape(to.cast(context.in(0), form.dtype), {form.images, form.per_image, x[2], x[3]});
  return Sampler(to, image, places, Sampling{"linear", "zeros", false});
}

}  // namespace

Result<InputGrads> deformable_grad(const GradContext& context) {
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  if (context.in_shape(0).size() != 4) return no_gradient(context, "of other images than 2-D ones");
  GraphBuilder& to = context.to;
  const Deformed form = form_of(context);
  Sampler sampler = sampler_of(context, form);
  const auto wide = [&](ValueId value, Shape shape) {
    return to.reshape(to.cast(value, form.dtype), std::move(shape));
  };
  const Shape each = {form.images, form.per_image, form.places()};
  ValueId mask;
  if (context.in(4).valid()) mask = wide(context.in(4), {form.images, 1, form.places()});
  const auto masked = [&](ValueId value) {
    return mask.valid() ? to.pointwise("Mul", {value, mask}) : value;
  };
  // The convolution itself: a sum over channels and kernel of what was read, the columns.
  const Shape w = context.in_shape(1);
  const std::int64_t group = context.op.int_attribute("group", 1), m = w[0] / group, c = w[1];
  const std::int64_t n = context.in_shape(0)[0];
  const Shape columns = {n, group, c, form.kernel, form.out}, kernels = {group, m, c, form.kernel};
  const ValueId g = wide(context.grad(), {n, group, m, form.out});
  const ValueId by_columns =
      to.reshape(to.einsum("ngmo,gmck->ngcko", {g, wide(context.in(1), kernels)}, columns), each);
  if (context.wants(0)) {
    grads[0] = to.reshape(sampler.image_grad(masked(by_columns)), context.in_shape(0));
  }
  if (context.wants(1)) {
    const ValueId read = to.reshape(masked(sampler.values()), columns);
    grads[1] = to.reshape(to.einsum("ngmo,ngcko->gmck", {g, read}, kernels), w);
  }
  if (context.wants(2)) {
    std::vector<ValueId> parts;
    for (std::size_t d = 0; d < 2; ++d) {
      parts.push_back(to.reshape(sampler.place_grad(masked(by_columns), d),
                                 {form.images, form.kernel, 1, form.out}));
    }
    grads[2] = to.reshape(to.concat(parts, 2), context.in_shape(2));
  }
  if (context.wants(3)) grads[3] = to.reduce("ReduceSum", context.grad(), {0, 2, 3}, false);
  if (context.wants(4)) {
    const ValueId product = to.pointwise("Mul", {by_columns, sampler.values()});
    grads[4] = to.reshape(to.reduce("ReduceSum", product, {1}), context.in_shape(4));
  }
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].valid()) grads[i] = to.cast(grads[i], to.dtype(context.in(i)));
  }
  return grads;
}

}  // namespace autopar
