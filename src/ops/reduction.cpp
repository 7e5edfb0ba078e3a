// Reductions over whole dimensions.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/softmax.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// Which dimensions are reduced; nothing where they are not known.
std::optional<std::vector<bool>> reduced_dims(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  std::vector<std::int64_t> axes = view.op.ints_attribute("axes");
  if (view.op.has_input(1)) {
    const auto given = constant_ints(view.graph, view.op, 1);
    if (!given) return std::nullopt;
    axes = *given;
  }
  if (axes.empty()) {
    return std::vector<bool>(rank, view.op.int_attribute("noop_with_empty_axes", 0) == 0);
  }
  std::vector<bool> reduced(rank, false);
  for (std::int64_t axis : axes) {
    const auto d = normal_axis(axis, rank);
    if (!d) return std::nullopt;
    reduced[*d] = true;
  }
  return reduced;
}

// "d0 d1+ d2, _ -> d0 d2"; `mark` is that of the reduced dimensions.
RuleText reduced_text(const OpView& view, char mark, const char* sections) {
  const auto reduced = reduced_dims(view);
  if (!reduced) return std::nullopt;
  std::vector<std::string> input = dim_names(view.in(0).size());
  std::vector<std::string> output;
  const bool keep = view.op.int_attribute("keepdims", 1) != 0;
  for (std::size_t d = 0; d < input.size(); ++d) {
    if (!reduced->at(d)) output.push_back(input[d]);
    if (reduced->at(d) && keep) output.push_back("_");
    if (reduced->at(d)) input[d] += mark;
  }
  return join(input) + (view.shapes.inputs.size() > 1 ? ", _" : "") + " -> " + join(output) +
         sections;
}

RuleText sum_rule(const OpView& view) { return reduced_text(view, '+', " | partial: 0"); }
RuleText mean_rule(const OpView& view) {
  // The mean of integers is rounded, so that of the parts does not tell it.
  const bool exact = is_floating(view.shapes.input_dtypes[0]);
  return reduced_text(view, exact ? '+' : '^', " | partial: 0");
}
RuleText positive_sum_rule(const OpView& view) { return reduced_text(view, '+', ""); }
RuleText max_rule(const OpView& view) { return reduced_text(view, '>', ""); }
RuleText min_rule(const OpView& view) { return reduced_text(view, '<', ""); }
RuleText exchange_rule(const OpView& view) { return reduced_text(view, '~', ""); }

RuleText arg_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const auto axis = view.axis("axis", 0, rank);
  if (!axis) return std::nullopt;
  std::vector<std::string> input = dim_names(rank), output = input;
  input[*axis] += "~";
  output[*axis] = "_";
  if (view.op.int_attribute("keepdims", 1) == 0) {
    output.erase(output.begin() + static_cast<std::ptrdiff_t>(*axis));
  }
  return join(input) + " -> " + join(output);
}

Op same_op(const LocalContext& context) {
  Op op = context.op;
  op.inputs = context.inputs;
  return op;
}

// The op on the local part, kept inside.
ValueId local_reduction(const LocalContext& context, Emitter& emitter, const std::string& type) {
  const Op op = same_op(context);
  return emitter.add(type, op.inputs, emitter.output_dtype(0), emitter.output_shape(0),
                     op.attributes);
}

// Parts are equally large, so the mean is the mean of their means: a partial sum of scaled ones.
Result<std::vector<ValueId>> split_mean(const LocalContext& context) {
  Emitter emitter(context);
  const ValueId mean = local_reduction(context, emitter, "ReduceMean");
  const double parts = static_cast<double>(emitter.parts(emitter.axes_of(FactorKind::kSum)));
  const ValueId scale = emitter.scalar(emitter.output_dtype(0), 1 / parts);
  return only_output(context, emitter.finish(0, "Mul", {mean, scale}));
}

// Plain on the parts; only ReduceProd and the compositions with roots and logarithms exchange.
Result<std::vector<ValueId>> split_product(const LocalContext& context) {
  Emitter emitter(context);
  const ValueId local = local_reduction(context, emitter, "ReduceProd");
  const ValueId all = emitter.all_reduce(local, emitter.axes_of(FactorKind::kExchange), "prod");
  return only_output(context, emitter.finish(0, "Identity", {all}));
}

Result<std::vector<ValueId>> split_l2(const LocalContext& context) {
  Emitter emitter(context);
  const ValueId local = local_reduction(context, emitter, "ReduceSumSquare");
  const ValueId all = emitter.all_reduce(local, emitter.axes_of(FactorKind::kExchange), "sum");
  return only_output(context, emitter.finish(0, "Sqrt", {all}));
}

// ReduceSum takes its axes as an input since opset 13, the others since opset 18.
ValueId local_sum_of(const LocalContext& context, Emitter& emitter, ValueId value) {
  Op op = same_op(context);
  op.inputs[0] = value;
  const auto axes = op.attributes.find("axes");
  if (axes != op.attributes.end()) {
    op.inputs.resize(2);
    op.inputs[1] = emitter.ints(op.ints_attribute("axes"));
    op.attributes.erase(axes);
  }
  return emitter.add("ReduceSum", op.inputs, emitter.output_dtype(0), emitter.output_shape(0),
                     op.attributes);
}

Result<std::vector<ValueId>> split_log_sum(const LocalContext& context) {
  Emitter emitter(context);
  const ValueId local = local_sum_of(context, emitter, emitter.input(0));
  const ValueId all = emitter.all_reduce(local, emitter.axes_of(FactorKind::kExchange), "sum");
  return only_output(context, emitter.finish(0, "Log", {all}));
}

// Shifted by the global maximum, so that no exponential overflows. Not by an infinite one, which
// would make infinity minus infinity of it.
Result<std::vector<ValueId>> split_log_sum_exp(const LocalContext& context) {
  Emitter emitter(context);
  const std::vector<int> axes = emitter.axes_of(FactorKind::kExchange);
  const OpShapes shapes = shapes_of(context.graph, context.op);
  const auto reduced = reduced_dims({context.graph, context.op, shapes});
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < reduced->size(); ++d) {
    if (reduced->at(d)) dims.push_back(d);
  }
  const ValueId x = emitter.input(0);
  const DType dtype = emitter.value(x).dtype;
  const ValueId highest = emitter.scalar(dtype, largest_of(dtype));
  const ValueId lowest = emitter.scalar(dtype, -largest_of(dtype));
  const ValueId finite =
      emitter.pointwise("Clip", {emitter.reduce("ReduceMax", x, dims), lowest, highest});
  const ValueId max = emitter.all_reduce(finite, axes, "max");
  const ValueId powers = emitter.pointwise("Exp", {emitter.pointwise("Sub", {x, max})});
  const ValueId sum = emitter.all_reduce(emitter.reduce("ReduceSum", powers, dims), axes, "sum");
  const ValueId kept = emitter.pointwise("Add", {emitter.pointwise("Log", {sum}), max});
  const ValueId shape = emitter.ints(emitter.output_shape(0));
  return only_output(context, emitter.finish(0, "Reshape", {kept, shape}));
}

// ArgMax and ArgMin: the best value of all, then the first (or last) place among those that have
// it. As in ONNX Runtime, nothing is better than a NaN in place 0, and other NaNs are not looked
// at; but of a vector's first places that of any NaN is the best.
class ArgSearch {
 public:
  explicit ArgSearch(const LocalContext& context)
      : emitter_(context),
        max_(context.op.type == "ArgMax"),
        last_(context.op.int_attribute("select_last_index", 0) != 0),
        axes_(emitter_.axes_of(FactorKind::kExchange)) {
    const Shape& whole = context.graph.value(context.op.inputs[0]).shape;
    axis_ = *normal_axis(context.op.int_attribute("axis", 0), whole.size());
    extent_ = whole[axis_];
    may_be_nan_ = is_floating(emitter_.value(emitter_.input(0)).dtype);
    places_ = own_places(whole.size());
  }

  ValueId run() {
    const ValueId is_best = emitter_.test("Equal", {emitter_.input(0), best()});
    none_ = emitter_.scalar(DType::kInt64, last_ ? -1 : double(extent_));
    ValueId found = best_place(emitter_.pointwise("Where", {is_best, places_, none_}));
    if (may_be_nan_) found = or_nan(found);
    found = emitter_.all_reduce(found, axes_, last_ ? "max" : "min");
    if (may_be_nan_) {
      found = emitter_.pointwise("Mod", {found, emitter_.scalar(DType::kInt64, double(extent_))});
    }
    return emitter_.finish(0, "Reshape", {found, emitter_.ints(emitter_.output_shape(0))});
  }

 private:
  // The numbers of the rank's elements along the axis.
  ValueId own_places(std::size_t rank) {
    Shape along(rank, 1);
    along[axis_] = extent_;
    std::vector<std::int64_t> places(static_cast<std::size_t>(extent_));
    std::iota(places.begin(), places.end(), 0);
    return emitter_.own_part(emitter_.constant(int64_tensor(along, places)), axes_,
                             static_cast<int>(axis_));
  }

  ValueId best() {
    ValueId x = emitter_.input(0);
    if (may_be_nan_) {
      const double infinity = std::numeric_limits<double>::infinity();
      const ValueId worst = emitter_.scalar(emitter_.value(x).dtype, max_ ? -infinity : infinity);
      x = emitter_.pointwise("Where", {emitter_.test("IsNaN", {x}), worst, x});
    }
    const ValueId own = emitter_.reduce(max_ ? "ReduceMax" : "ReduceMin", x, {axis_});
    return emitter_.all_reduce(own, axes_, max_ ? "max" : "min");
  }

  // A NaN that wins has a place before all others (behind them, where the last one is looked for),
  // which modulo the extent is its own.
  ValueId or_nan(ValueId found) {
    ValueId x = emitter_.input(0), places = places_;
    const bool any_wins = emitter_.value(x).shape.size() == 1 && !last_;
    if (!any_wins) {
      x = emitter_.slice(x, axis_, 0, 1);
      places = emitter_.slice(places, axis_, 0, 1);
    }
    ValueId wins = emitter_.test("IsNaN", {x});
    const ValueId zero = emitter_.scalar(DType::kInt64, 0);
    if (!any_wins) wins = emitter_.test("And", {wins, emitter_.test("Equal", {places, zero})});
    const double extent = double(extent_);
    const ValueId by = emitter_.scalar(DType::kInt64, last_ ? extent : -extent);
    const ValueId ahead = emitter_.pointwise("Add", {places, by});
    const ValueId own = best_place(emitter_.pointwise("Where", {wins, ahead, none_}));
    return emitter_.pointwise(last_ ? "Max" : "Min", {found, own});
  }

  ValueId best_place(ValueId of) {
    return emitter_.reduce(last_ ? "ReduceMax" : "ReduceMin", of, {axis_});
  }

  Emitter emitter_;
  const bool max_, last_;
  const std::vector<int> axes_;
  std::size_t axis_ = 0;
  std::int64_t extent_ = 0;
  bool may_be_nan_ = false;
  ValueId places_, none_;
};

Result<std::vector<ValueId>> split_arg(const LocalContext& context) {
  return only_output(context, ArgSearch(context).run());
}

OpRow reduction(const char* type, RuleFunction rule, double flops, GradFunction grad,
                LocaliseFunction split) {
  return {.type = type,
          .rule = rule,
          .flops_per_element = flops,
          .grad = grad,
          .operands = operand_bits({1}),
          .split = split,
          .exact_on_integers = std::string(type) == "ReduceSum"};
}

}  // namespace

std::span<const OpRow> reduction_rows() {
  static const std::vector<OpRow> rows = {
      reduction("ReduceSum", sum_rule, 1, reduce_sum_grad, nullptr),
      reduction("ReduceMean", mean_rule, 1, reduce_mean_grad, split_mean),
      reduction("ReduceSumSquare", positive_sum_rule, 2, reduce_square_grad, nullptr),
      reduction("ReduceL1", positive_sum_rule, 2, reduce_l1_grad, nullptr),
      reduction("ReduceMax", max_rule, 1, reduce_extremum_grad, nullptr),
      reduction("ReduceMin", min_rule, 1, reduce_extremum_grad, nullptr),
      reduction("ReduceProd", exchange_rule, 1, reduce_product_grad, split_product),
      reduction("ReduceL2", exchange_rule, 2, reduce_l2_grad, split_l2),
      reduction("ReduceLogSum", exchange_rule, 1, reduce_log_sum_grad, split_log_sum),
      reduction("ReduceLogSumExp", exchange_rule, 10, reduce_log_sum_exp_grad, split_log_sum_exp),
      {.type = "ArgMax", .rule = arg_rule, .split = split_arg},
      {.type = "ArgMin", .rule = arg_rule, .split = split_arg},
  };
  return rows;
}

}  // namespace autopar
