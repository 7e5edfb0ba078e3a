// Gradients of ops that move elements: the way back.
#include <algorithm>

#include "ops/grads/grads.hpp"

namespace autopar {

Result<InputGrads> reshape_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  return only_input(context, 0, context.to.reshape(context.grad(), context.in_shape(0)));
}

Result<InputGrads> transpose_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  const std::size_t rank = context.in_shape(0).size();
  std::vector<std::int64_t> perm;
  for (std::size_t d = rank; d-- > 0;) perm.push_back(static_cast<std::int64_t>(d));
  perm = context.op.ints_attribute("perm", perm);
  std::vector<std::size_t> back(rank);
  for (std::size_t d = 0; d < rank; ++d) back[static_cast<std::size_t>(perm[d])] = d;
  return only_input(context, 0, context.to.transpose(context.grad(), back));
}

Result<InputGrads> concat_grad(const GradContext& context) {
  const std::size_t count = context.op.inputs.size();
  InputGrads grads(count);
  if (!context.grad().valid()) return grads;
  const std::size_t axis = context.axis("axis", 0, context.out_shape(0).size());
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t end = begin + context.in_shape(i)[axis];
    if (context.wants(i)) grads[i] = context.to.slice(context.grad(), axis, begin, end);
    begin = end;
  }
  return grads;
}

// Parts that the op does not name have no gradient.
Result<InputGrads> split_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  const Shape whole = context.in_shape(0);
  const std::size_t axis = context.axis("axis", 0, whole.size());
  const auto given = context.ints(1);
  const std::size_t count = given ? given->size() : context.op.outputs.size();
  std::vector<ValueId> parts;
  std::int64_t left = whole[axis];
  for (std::size_t i = 0; i < count; ++i) {
    Shape part = whole;
    // Equal parts, the last one perhaps smaller.
    const std::int64_t equal =
        (whole[axis] + static_cast<std::int64_t>(count) - 1) / static_cast<std::int64_t>(count);
    part[axis] = given ? (*given)[i] : std::min(equal, left);
    left -= part[axis];
    parts.push_back(context.grad(i).valid() ? context.grad(i)
                                            : to.filled(to.dtype(context.in(0)), part, 0));
  }
  return only_input(context, 0, to.concat(parts, axis));
}

Result<InputGrads> expand_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  return only_input(context, 0, context.to.sum_to(context.grad(), context.in_shape(0)));
}

Result<InputGrads> slice_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  const auto starts = context.ints(1), ends = context.ints(2), axes = context.ints(3),
             steps = context.ints(4);
  if (!starts || !ends) return no_gradient(context, "where its bounds are not constant");
  const Shape whole = context.in_shape(0);
  const Shape part = context.out_shape(0);
  std::vector<std::int64_t> before(whole.size()), after(whole.size());
  ValueId grad = context.grad();
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const std::size_t d =
        static_cast<std::size_t>(axes ? (*axes)[i] : static_cast<std::int64_t>(i));
    const std::int64_t step = steps ? (*steps)[i] : 1;
    std::int64_t first = (*starts)[i] < 0 ? (*starts)[i] + whole[d] : (*starts)[i];
    first = std::clamp<std::int64_t>(first, 0, step > 0 ? whole[d] : whole[d] - 1);
    if (part[d] == 0) first = 0;
    std::int64_t stride = step;
    if (step < 0) {
      // Backwards: turned round, it is the slice that begins at its last element.
      Shape shape = to.shape(grad);
      const ValueId dims = to.ints({static_cast<std::int64_t>(d)});
      grad = to.add("Slice", {grad, to.ints({-1}), to.ints({INT64_MIN}), dims, to.ints({-1})},
                    to.dtype(grad), shape);
      stride = -step;
      first -= (part[d] - 1) * stride;
    }
    if (stride > 1 && part[d] > 0) {
      // Zeros between: a dimension more, padded, and joined again.
      Shape apart = to.shape(grad);
      apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(d) + 1, 1);
      grad = to.reshape(grad, apart);
      std::vector<std::int64_t> none(apart.size()), more(apart.size());
      more[d + 1] = stride - 1;
      grad = to.pad(grad, none, more);
      Shape joined = to.shape(grad);
      joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(d) + 1);
      joined[d] *= stride;
      grad = to.reshape(grad, joined);
      // The last one has fewer zeros behind it.
      grad = to.slice(grad, d, 0, (part[d] - 1) * stride + 1);
    }
    before[d] = first;
    after[d] = whole[d] - first - to.shape(grad)[d];
  }
  return only_input(context, 0, to.pad(grad, before, after));
}

}  // namespace autopar
