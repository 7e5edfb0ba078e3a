// Products of matrices that lie on a square of devices, q rows of q: each has one part of either
// operand and of the product (SUMMA: van de Geijn, Watts, Concurrency 1997).
//
//   row=a, col=b:  X [m/a, k/b], W [k/a, n/b] -> Y [m/a, n/b]
//
// In step t the devices of column t give their part of X to their row, those of row t their part of
// W to their column, and every device adds the product of what it got to its part of Y. So nothing
// is there whole: beside its own parts a device has one part of each operand and two of Y.
#include "ops/emitter.hpp"
#include "ops/table.hpp"

namespace autopar {

Result<std::vector<ValueId>> move_products(const LocalContext& context) {
  Emitter emitter(context);
  const Op& op = context.op;  // a Gemm may have either operand transposed
  const std::vector<int> rows = emitter.axes_of("row"), columns = emitter.axes_of("col");
  const std::int64_t steps = emitter.parts(rows);
  // In 32 bits where the operands have 16: a sum of q rounded numbers would be worse than one.
  ValueId sum;
  for (std::int64_t t = 0; t < steps; ++t) {
    // The parts of the step before are gone by then.
    const ValueId left = emitter.broadcast(emitter.input(0), columns, t, sum);
    const ValueId right = emitter.broadcast(emitter.input(1), rows, t, {});
    const ValueId product =
        widened(emitter, emitter.add(op.type, {left, right}, emitter.dtype(left),
                                     emitter.output_shape(0), op.attributes));
    const bool last = t + 1 == steps && emitter.value(product).dtype == emitter.output_dtype(0);
    if (last) return only_output(context, emitter.finish(0, "Add", {sum, product}));
    sum = t == 0 ? product : emitter.pointwise("Add", {sum, product});
  }
  return only_output(context, finish_cast(emitter, 0, sum));
}

}  // namespace autopar
