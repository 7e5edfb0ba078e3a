// Ops along one dimension that cannot be split, or into one that can: scans, sorting, one-hot.
#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/index.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// "d0 _ d2": all dimensions but the one of the scan, whose number is an input.
RuleText scan_text(const OpView& view, const char* mark, const char* sections) {
  const auto axis = constant_ints(view.graph, view.op, 1);
  std::vector<std::string> dims = dim_names(view.in(0).size());
  const auto d = axis && axis->size() == 1 ? normal_axis((*axis)[0], dims.size()) : std::nullopt;
  if (!d) return std::nullopt;
  dims[*d] += mark;
  return join(dims) + ", " + whole_dims(view.in(1).size()) + " -> " + join(dims) + sections;
}
RuleText cumulative_sum_rule(const OpView& view) { return scan_text(view, "~", " | partial: 0"); }
RuleText cumulative_product_rule(const OpView& view) { return scan_text(view, "^", ""); }

// Sums of the parts are put side by side by adding up vectors in which every rank has filled its
// own place; those before the rank (after it, in reverse) are added to its own scan. They are
// selected, since an infinite sum times 0 is no number.
Result<std::vector<ValueId>> split_cumulative_sum(const LocalContext& context) {
  Emitter emitter(context);
  const ValueId x = emitter.input(0);
  const DType dtype = emitter.value(x).dtype;
  const Shape shape = emitter.value(x).shape;
  const auto given = constant_ints(context.graph, context.op, 1);
  const std::size_t axis = *normal_axis(given->front(), shape.size());
  const std::vector<int> axes = emitter.axes_of_input(0, axis);
  const std::int64_t n = emitter.parts(axes);
  const bool reverse = context.op.int_attribute("reverse", 0) != 0;

  const ValueId total = emitter.reduce("ReduceSum", x, {axis});
  Shape row = emitter.value(total).shape;
  row.insert(row.begin(), 1);
  Shape column(row.size(), 1);
  column[0] = n;
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  const ValueId parts = emitter.constant(int64_tensor(column, numbers));
  const ValueId own = emitter.offset(axes, 1, DType::kInt64);
  const ValueId is_own = emitter.test("Equal", {parts, own});
  const ValueId is_before = emitter.test(reverse ? "Greater" : "Less", {parts, own});
  const ValueId zero = emitter.scalar(dtype, 0);
  const ValueId placed = emitter.pointwise("Where", {is_own, emitter.reshape(total, row), zero});
  const ValueId totals = emitter.all_reduce(placed, axes, "sum");
  const ValueId before = emitter.pointwise("Where", {is_before, totals, zero});
  const ValueId sum = emitter.reduce("ReduceSum", before, {0});
  const ValueId offset = emitter.reshape(sum, emitter.value(total).shape);
  const ValueId scan = emitter.add("CumSum", context.inputs, dtype, shape, context.op.attributes);
  return only_output(context, emitter.finish(0, "Add", {scan, offset}));
}

RuleText top_k_rule(const OpView& view) {
  std::vector<std::string> dims = dim_names(view.in(0).size());
  const auto axis = view.axis("axis", -1, dims.size());
  if (!axis) return std::nullopt;
  dims[*axis] = "_";
  return join(dims) + ", _ -> " + join(dims) + ", " + join(dims);
}

// The new dimension is split by counting from the rank's first class.
RuleText one_hot_rule(const OpView& view) {
  const std::vector<std::string> indices = dim_names(view.in(0).size());
  const auto axis = view.axis("axis", -1, indices.size() + 1);
  if (!axis) return std::nullopt;
  std::vector<std::string> output = indices;
  output.insert(output.begin() + static_cast<std::ptrdiff_t>(*axis), "v~");
  return join(indices) + ", " + whole_dims(view.in(1).size()) + ", _ -> " + join(output);
}

Result<std::vector<ValueId>> split_one_hot(const LocalContext& context) {
  Emitter emitter(context);
  const Shape local = emitter.output_shape(0);
  const std::size_t axis = *normal_axis(context.op.int_attribute("axis", -1), local.size());
  // Floating indices are rounded towards zero.
  const ValueId indices = emitter.cast(emitter.input(0), DType::kInt64);
  const OwnIndices own =
      own_indices(emitter, indices, context.specs.outputs[0].dims[axis], local[axis]);
  // An index of the local extent is out of range: all values are "off".
  const ValueId none = emitter.scalar(DType::kInt64, double(local[axis]));
  const ValueId shifted = emitter.pointwise("Where", {own.mask, own.shifted, none});
  const ValueId depth =
      emitter.constant(int64_tensor(emitter.value(emitter.input(1)).shape, {local[axis]}));
  return only_output(context, emitter.finish(0, "OneHot", {shifted, depth, emitter.input(2)},
                                             context.op.attributes));
}

Work output_work(const Op& op, const OpShapes& shapes) {
  Work work = gather_work(op, shapes);
  work.bytes /= 2;
  return work;
}

}  // namespace

std::span<const OpRow> scan_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "CumSum",
       .rule = cumulative_sum_rule,
       .grad = cumulative_sum_grad,
       .operands = operand_bits({1}),
       .split = split_cumulative_sum,
       .exact_on_integers = true},
      {.type = "CumProd",
       .rule = cumulative_product_rule,
       .grad = cumulative_product_grad,
       .operands = operand_bits({1})},
      {.type = "TopK",
       .rule = top_k_rule,
       .flops_per_element = 8,
       .grad = top_k_grad,
       .operands = operand_bits({1})},
      {.type = "OneHot",
       .rule = one_hot_rule,
       .work = output_work,
       .grad = one_hot_grad,
       .operands = operand_bits({1}),
       .split = split_one_hot},
  };
  return rows;
}

}  // namespace autopar
