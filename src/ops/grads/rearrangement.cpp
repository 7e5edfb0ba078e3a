// Gradients of ops that repeat, select or regroup elements.
#include <algorithm>

#include "ops/grads/grads.hpp"

namespace autopar {

// The repetitions are a dimension of their own, which is summed.
Result<InputGrads> tile_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(2);
  const Shape from = context.in_shape(0), into = context.out_shape(0);
  Shape apart;
  std::vector<std::size_t> repetitions;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const std::int64_t repeats = from[d] == 0 ? 1 : into[d] / from[d];
    if (repeats != 1) {
      repetitions.push_back(apart.size());
      apart.push_back(repeats);
    }
    apart.push_back(from[d]);
  }
  if (element_count(into) == 0) {
    return only_input(context, 0, to.filled(to.dtype(context.in(0)), from, 0));
  }
  const ValueId grad = to.reshape(context.grad(), apart);
  return only_input(context, 0, to.reshape(to.reduce("ReduceSum", grad, repetitions, false), from));
}

// What is zero in the output is zero in the gradient; what is turned round is turned back: the op
// itself.
Result<InputGrads> same_op_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  std::vector<ValueId> inputs = context.op.inputs;
  inputs[0] = context.grad();
  return only_input(context, 0,
                    to.add(context.op.type, inputs, to.dtype(inputs[0]), to.shape(inputs[0]),
                           context.op.attributes));
}

Result<InputGrads> depth_to_space_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(1);
  const Shape from = context.in_shape(0), into = context.out_shape(0);
  const std::int64_t r = context.op.int_attribute("blocksize", 1);
  if (context.op.string_attribute("mode", "DCR") == "DCR") {
    return only_input(context, 0,
                      to.add("SpaceToDepth", {context.grad()}, to.dtype(context.grad()), from,
                             {{"blocksize", r}}));
  }
  const ValueId apart = to.reshape(context.grad(), {from[0], into[1], from[2], r, from[3], r});
  return only_input(context, 0, to.reshape(to.transpose(apart, {0, 1, 3, 5, 2, 4}), from));
}

Result<InputGrads> space_to_depth_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(1);
  const std::int64_t r = context.op.int_attribute("blocksize", 1);
  return only_input(context, 0,
                    to.add("DepthToSpace", {context.grad()}, to.dtype(context.grad()),
                           context.in_shape(0), {{"blocksize", r}}));
}

// The columns are read from where they were added, one spatial dimension after the other.
Result<InputGrads> column_to_image_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(3);
  const auto block = context.ints(2);
  if (!block) return no_gradient(context, "where its block shape is not constant");
  const std::size_t spatial = block->size();
  const std::vector<std::int64_t> ones(spatial, 1), none(2 * spatial, 0);
  const std::vector<std::int64_t> strides = context.op.ints_attribute("strides", ones);
  const std::vector<std::int64_t> dilations = context.op.ints_attribute("dilations", ones);
  const std::vector<std::int64_t> pads = context.op.ints_attribute("pads", none);
  std::vector<std::int64_t> before(2), after(2);
  before.insert(before.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  after.insert(after.end(), pads.begin() + static_cast<std::ptrdiff_t>(spatial), pads.end());
  ValueId image = to.pad(context.grad(), before, after);
  const Shape padded = to.shape(image);
  std::vector<std::size_t> perm = {0, 1};
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t reach = dilations[i] * ((*block)[i] - 1) + 1;
    const std::int64_t places = (padded[i + 2] - reach) / strides[i] + 1;
    std::vector<std::int64_t> indices;
    for (std::int64_t k = 0; k < (*block)[i]; ++k) {
      for (std::int64_t l = 0; l < places; ++l) {
        indices.push_back(k * dilations[i] + l * strides[i]);
      }
    }
    // Of the dimensions before, each has become two: within the block, and its place.
    const std::size_t d = 2 + 2 * i;
    Shape shape = to.shape(image);
    shape[d] = (*block)[i];
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, places);
    const ValueId index = to.constant(int64_tensor({(*block)[i], places}, indices));
    image = to.add("Gather", {image, index}, to.dtype(image), shape,
                   {{"axis", static_cast<std::int64_t>(d)}});
  }
  for (std::size_t i = 0; i < spatial; ++i) perm.push_back(2 + 2 * i);
  for (std::size_t i = 0; i < spatial; ++i) perm.push_back(3 + 2 * i);
  return only_input(context, 0, to.reshape(to.transpose(image, perm), context.in_shape(0)));
}

// The grid of the identity is what the matrix is multiplied by, without the constant coordinate.
Result<InputGrads> affine_grid_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(2);
  const Shape grid = context.out_shape(0);
  const std::int64_t n = grid.back();  // 2 or 3
  const DType dtype = to.dtype(context.grad());
  Tensor identity{dtype, {1, n, n + 1}, {}};
  for (std::int64_t i = 0; i < n * (n + 1); ++i) {
    identity.bytes += scalar_tensor(dtype, i / (n + 1) == i % (n + 1) ? 1 : 0).bytes;
  }
  std::vector<std::int64_t> size = {1, 1};
  size.insert(size.end(), grid.begin() + 1, grid.end() - 1);
  Shape whole = grid;
  whole[0] = 1;
  const std::int64_t points = element_count(grid) / std::max<std::int64_t>(grid[0] * n, 1);
  const ValueId base = to.add("AffineGrid", {to.constant(identity), to.ints(size)}, dtype, whole,
                              context.op.attributes);
  const ValueId g = to.reshape(context.grad(), {grid[0], points, n});
  const ValueId coordinates = to.reshape(base, {points, n});
  const ValueId linear = to.einsum("npi,pj->nij", {g, coordinates}, {grid[0], n, n});
  const ValueId shift = to.reshape(to.reduce("ReduceSum", g, {1}, false), {grid[0], n, 1});
  return only_input(context, 0, to.concat({linear, shift}, 2));
}

}  // namespace autopar
