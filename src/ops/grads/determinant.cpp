// The gradient of Det: the cofactors, which are there also where the matrix has no inverse. Linear
// algebra has no other ops in ONNX, so every minor is a determinant: n^2 of them.
#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

constexpr std::int64_t kMaxRows = 16;

}  // namespace

Result<InputGrads> determinant_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(1);
  const ValueId x = context.in(0);
  const Shape whole = to.shape(x);
  const std::int64_t n = whole.back();
  if (n > kMaxRows) {
    return no_gradient(context, "of matrices of more than " + std::to_string(kMaxRows) + " rows");
  }
  const DType dtype = to.dtype(x);
  const std::size_t batch = whole.size() - 2;
  ValueId g = context.grad();
  g = to.reshape(g, [&] {
    Shape shape = to.shape(g);
    shape.insert(shape.end(), {1, 1});
    return shape;
  }());
  if (n <= 1) return only_input(context, 0, to.reshape(g, whole));
  std::vector<std::int64_t> others;
  Tensor signs{dtype, {n, n}, {}};
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      if (j != i) others.push_back(j);
      signs.bytes += scalar_tensor(dtype, (i + j) % 2 == 0 ? 1 : -1).bytes;
    }
  }
  const ValueId index = to.constant(int64_tensor({n, n - 1}, others));
  // [.., i, row, column] -> [.., i, row, j, column] -> [.., i, j, row, column]
  Shape shape(whole.begin(), whole.end() - 2);
  shape.insert(shape.end(), {n, n - 1, n});
  const ValueId rows =
      to.add("Gather", {x, index}, dtype, shape, {{"axis", static_cast<std::int64_t>(batch)}});
  shape.back() = n - 1;
  shape.insert(shape.end() - 1, n);
  const ValueId both = to.add("Gather", {rows, index}, dtype, shape,
                              {{"axis", static_cast<std::int64_t>(batch + 2)}});
  std::vector<std::size_t> perm;
  for (std::size_t d = 0; d < batch + 4; ++d) perm.push_back(d);
  std::swap(perm[batch + 1], perm[batch + 2]);
  const ValueId minors = to.add("Det", {to.transpose(both, perm)}, dtype, whole);
  const ValueId cofactors = to.pointwise("Mul", {minors, to.constant(signs)});
  return only_input(context, 0, to.pointwise("Mul", {cofactors, g}));
}

}  // namespace autopar
