// Softmax and its kin over one dimension, which may be split: the ranks then share its maximum and
// the sum of its exponentials.
#include "ops/softmax.hpp"

#include <limits>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

RuleText along_axis(const OpView& view, const char* mark) {
  const std::size_t rank = view.in(0).size();
  const auto axis = view.axis("axis", -1, rank);
  if (!axis) return std::nullopt;
  std::vector<std::string> dims = dim_names(rank);
  dims[*axis] += mark;
  return join(dims) + " -> " + join(dims);
}

RuleText exchanging_rule(const OpView& view) { return along_axis(view, "~"); }
RuleText hardmax_rule(const OpView& view) { return along_axis(view, "^"); }

std::size_t axis_of(const LocalContext& context) {
  const std::size_t rank = context.graph.value(context.op.inputs[0]).shape.size();
  return *normal_axis(context.op.int_attribute("axis", -1), rank);
}

Result<std::vector<ValueId>> split_softmax(const LocalContext& context) {
  Emitter emitter(context);
  const SoftmaxParts parts = softmax_parts(emitter, emitter.input(0), axis_of(context),
                                           emitter.axes_of(FactorKind::kExchange));
  const ValueId ratio = emitter.pointwise("Div", {parts.powers, parts.sum});
  return only_output(context, finish_cast(emitter, 0, ratio));
}

Result<std::vector<ValueId>> split_log_softmax(const LocalContext& context) {
  Emitter emitter(context);
  const SoftmaxParts parts = softmax_parts(emitter, emitter.input(0), axis_of(context),
                                           emitter.axes_of(FactorKind::kExchange));
  const ValueId log = emitter.pointwise("Log", {parts.sum});
  const ValueId difference = emitter.pointwise("Sub", {parts.shifted, log});
  return only_output(context, finish_cast(emitter, 0, difference));
}

}  // namespace

SoftmaxParts softmax_parts(Emitter& emitter, ValueId from, std::size_t axis,
                           const std::vector<int>& axes) {
  SoftmaxParts parts;
  const ValueId x = widened(emitter, from);
  parts.max = emitter.all_reduce(emitter.reduce("ReduceMax", x, {axis}), axes, "max");
  parts.shifted = emitter.pointwise("Sub", {x, parts.max});
  parts.powers = emitter.pointwise("Exp", {parts.shifted});
  parts.sum = emitter.all_reduce(emitter.reduce("ReduceSum", parts.powers, {axis}), axes, "sum");
  return parts;
}

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return std::numeric_limits<double>::max();
    case DType::kFloat16:
      return 0x1.ffcp15;
    case DType::kBFloat16:
      return 0x1.fep127;
    default:
      return double(std::numeric_limits<float>::max());
  }
}

ValueId widened_mask(GraphBuilder& to, ValueId mask, DType wide) {
  const DType narrow = to.dtype(mask);
  const ValueId as_wide = to.cast(mask, wide);
  if (size_of(narrow) != 2) return as_wide;
  const ValueId shows = to.test("Greater", {mask, to.scalar(narrow, -largest_of(narrow))});
  const ValueId hidden = to.scalar(wide, -std::numeric_limits<double>::infinity());
  return to.pointwise("Where", {shows, as_wide, hidden});
}

ValueId where_seen(GraphBuilder& to, ValueId values, ValueId most) {
  const DType of_scores = to.dtype(most);
  const ValueId sees = to.test("Greater", {most, to.scalar(of_scores, -largest_of(of_scores))});
  return to.pointwise("Where", {sees, values, to.scalar(to.dtype(values), 0)});
}

std::span<const OpRow> softmax_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "Softmax",
       .rule = exchanging_rule,
       .flops_per_element = 12,
       .grad = softmax_grad,
       .split = split_softmax},
      {.type = "LogSoftmax",
       .rule = exchanging_rule,
       .flops_per_element = 12,
       .grad = log_softmax_grad,
       .split = split_log_softmax},
      {.type = "Hardmax", .rule = hardmax_rule, .flops_per_element = 2, .grad_text = ""},
  };
  return rows;
}

}  // namespace autopar
