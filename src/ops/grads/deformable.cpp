// Gradient of DeformConv: a convolution of images that are read at places that an input moves.
#include "ops/grads/grads.hpp"
#include "ops/grads/sampling.hpp"

namespace autopar {
namespace {

struct Deformed {
  std::int64_t n, channels, group, offset_group, kernel, out;  // kernel and out: elements
  std::vector<std::int64_t> kernel_shape, out_shape;
};

std::int64_t entry(const GradContext& context, const char* name, std::size_t d,
                   std::int64_t fallback) {
  const std::vector<std::int64_t> values = context.op.ints_attribute(name);
  return d < values.size() ? values[d] : fallback;
}

// Places of dimension `d` without offsets: [1, kernel, out].
Tensor regular_places(const GradContext& context, const Deformed& form, std::size_t d,
                      DType dtype) {
  Tensor tensor{dtype, {1, form.kernel, form.out}, {}};
  const std::int64_t stride = entry(context, "strides", d, 1);
  const std::int64_t dilation = entry(context, "dilations", d, 1);
  const std::int64_t before = entry(context, "pads", d, 0);
  for (std::int64_t k = 0; k < form.kernel; ++k) {
    for (std::int64_t o = 0; o < form.out; ++o) {
      const std::int64_t k_d = d == 0 ? k / form.kernel_shape[1] : k % form.kernel_shape[1];
      const std::int64_t o_d = d == 0 ? o / form.out_shape[1] : o % form.out_shape[1];
      const std::int64_t place = o_d * stride - before + k_d * dilation;
      tensor.bytes += scalar_tensor(dtype, static_cast<double>(place)).bytes;
    }
  }
  return tensor;
}

}  // namespace

Result<InputGrads> deformable_grad(const GradContext& context) {
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  if (context.in_shape(0).size() != 4) return no_gradient(context, "of other images than 2-D ones");
  GraphBuilder& to = context.to;
  const Shape x = context.in_shape(0), w = context.in_shape(1), y = context.out_shape(0);
  const Deformed form = {x[0],
                         x[1],
                         context.op.int_attribute("group", 1),
                         context.op.int_attribute("offset_group", 1),
                         w[2] * w[3],
                         y[2] * y[3],
                         {w[2], w[3]},
                         {y[2], y[3]}};
  const DType dtype = to.dtype(context.in(0));
  // Every offset group is an image of its own.
  const std::int64_t images = form.n * form.offset_group, places = form.kernel * form.out;
  const std::int64_t per_image = form.channels / form.offset_group;
  const ValueId offsets = to.reshape(context.in(2), {images, form.kernel, 2, form.out});
  std::vector<ValueId> coordinates;
  for (std::size_t d = 0; d < 2; ++d) {
    const auto k = static_cast<std::int64_t>(d);
    const ValueId moved =
        to.reshape(to.slice(offsets, 2, k, k + 1), {images, form.kernel, form.out});
    const ValueId regular = to.constant(regular_places(context, form, d, dtype));
    coordinates.push_back(to.reshape(to.pointwise("Add", {moved, regular}), {images, 1, places}));
  }
  const ValueId image = to.reshape(context.in(0), {images, per_image, x[2], x[3]});
  Sampler sampler(to, image, coordinates, Sampling{"linear", "zeros", false});
  const ValueId read = sampler.values();
  ValueId mask;
  if (context.in(4).valid()) mask = to.reshape(context.in(4), {images, 1, places});
  const auto masked = [&](ValueId value) {
    return mask.valid() ? to.pointwise("Mul", {value, mask}) : value;
  };
  // The convolution itself, a sum over channels and kernel of what was read.
  const std::int64_t c = w[1], m = w[0] / form.group;
  const Shape columns_shape = {form.n, form.group, c, form.kernel, form.out};
  const ValueId g = to.reshape(context.grad(), {form.n, form.group, m, form.out});
  const ValueId weight = to.reshape(context.in(1), {form.group, m, c, form.kernel});
  const ValueId by_columns = to.reshape(to.einsum("ngmo,gmck->ngcko", {g, weight}, columns_shape),
                                        {images, per_image, places});
  if (context.wants(0)) {
    grads[0] = to.reshape(sampler.image_grad(masked(by_columns)), x);
  }
  if (context.wants(1)) {
    const ValueId columns = to.reshape(masked(read), columns_shape);
    grads[1] =
        to.reshape(to.einsum("ngmo,ngcko->gmck", {g, columns}, {form.group, m, c, form.kernel}), w);
  }
  if (context.wants(2)) {
    std::vector<ValueId> parts;
    for (std::size_t d = 0; d < 2; ++d) {
      parts.push_back(to.reshape(sampler.place_grad(masked(by_columns), d),
                                 {images, form.kernel, 1, form.out}));
    }
    grads[2] = to.reshape(to.concat(parts, 2), context.in_shape(2));
  }
  if (context.wants(3)) grads[3] = to.reduce("ReduceSum", context.grad(), {0, 2, 3}, false);
  if (context.wants(4)) {
    const ValueId sum = to.reduce("ReduceSum", to.pointwise("Mul", {by_columns, read}), {1});
    grads[4] = to.reshape(sum, context.in_shape(4));
  }
  return grads;
}

}  // namespace autopar
