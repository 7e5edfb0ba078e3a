// Normalisations. Over dimensions that are split the ranks share sums; means come before squares of
// differences, as in the ops themselves, so that nothing cancels.
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// Dimensions from `axis` on are normalised; scale and bias have those dimensions, maybe broadcast.
RuleText layer_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const auto axis = view.axis("axis", -1, rank);
  if (!axis) return std::nullopt;
  std::vector<std::string> dims = dim_names(rank), statistics = dims;
  for (std::size_t d = *axis; d < rank; ++d) {
    dims[d] += '~';
    statistics[d] = "_";
  }
  const auto aligned = [&](const Shape& shape) {
    return join(
        {dims.end() - static_cast<std::ptrdiff_t>(std::min(shape.size(), rank)), dims.end()});
  };
  return join(dims) + ", " + aligned(view.in(1)) + ", " + aligned(view.in(2)) + " -> " +
         join(dims) + ", " + join(statistics) + ", " + join(statistics);
}

std::vector<std::size_t> normalised_dims(const LocalContext& context) {
  const std::size_t rank = context.graph.value(context.op.inputs[0]).shape.size();
  std::vector<std::size_t> dims;
  for (std::size_t d = *normal_axis(context.op.int_attribute("axis", -1), rank); d < rank; ++d) {
    dims.push_back(d);
  }
  return dims;
}

double count_of(const LocalContext& context, const std::vector<std::size_t>& dims) {
  double count = 1;
  const Shape& shape = context.graph.value(context.op.inputs[0]).shape;
  for (std::size_t d : dims) count *= static_cast<double>(shape[d]);
  return count;
}

// The mean over `dims` of the whole tensor, with extents of 1 there.
ValueId shared_mean(const LocalContext& context, Emitter& emitter, ValueId x,
                    const std::vector<std::size_t>& dims) {
  const ValueId sum = emitter.all_reduce(emitter.reduce("ReduceSum", x, dims),
                                         emitter.axes_of(FactorKind::kExchange), "sum");
  const ValueId count = emitter.scalar(emitter.value(x).dtype, count_of(context, dims));
  return emitter.pointwise("Div", {sum, count});
}

// 1 / sqrt(variance + epsilon)
ValueId inverse_deviation(Emitter& emitter, ValueId variance, double epsilon) {
  const ValueId shift = emitter.scalar(emitter.value(variance).dtype, epsilon);
  const ValueId sum = emitter.pointwise("Add", {variance, shift});
  return emitter.pointwise("Reciprocal", {emitter.pointwise("Sqrt", {sum})});
}

Result<std::vector<ValueId>> split_layer(const LocalContext& context) {
  Emitter emitter(context);
  const std::vector<std::size_t> dims = normalised_dims(context);
  const DType dtype = emitter.value(emitter.input(0)).dtype;
  const ValueId x = widened(emitter, emitter.input(0));
  const ValueId mean = shared_mean(context, emitter, x, dims);
  const ValueId centred = emitter.pointwise("Sub", {x, mean});
  const ValueId squares = emitter.pointwise("Mul", {centred, centred});
  const ValueId variance = shared_mean(context, emitter, squares, dims);
  const double epsilon = context.op.float_attribute("epsilon", 1e-5);
  const ValueId inverse = inverse_deviation(emitter, variance, epsilon);
  const ValueId normal = emitter.cast(emitter.pointwise("Mul", {centred, inverse}), dtype);
  std::vector<ValueId> outputs(context.op.outputs.size());
  if (emitter.has_input(2)) {
    const ValueId scaled = emitter.pointwise("Mul", {normal, emitter.input(1)});
    outputs[0] = emitter.finish(0, "Add", {scaled, emitter.input(2)});
  } else {
    outputs[0] = emitter.finish(0, "Mul", {normal, emitter.input(1)});
  }
  if (emitter.has_output(1)) outputs[1] = finish_cast(emitter, 1, mean);
  if (emitter.has_output(2)) outputs[2] = finish_cast(emitter, 2, inverse);
  return outputs;
}

Result<std::vector<ValueId>> split_rms(const LocalContext& context) {
  Emitter emitter(context);
  const ValueId x = widened(emitter, emitter.input(0));
  const ValueId squares = emitter.pointwise("Mul", {x, x});
  const ValueId mean = shared_mean(context, emitter, squares, normalised_dims(context));
  const double epsilon = context.op.float_attribute("epsilon", 1e-5);
  const ValueId inverse = inverse_deviation(emitter, mean, epsilon);
  const DType dtype = emitter.output_dtype(0);
  const ValueId normal = emitter.cast(emitter.pointwise("Mul", {x, inverse}), dtype);
  return only_output(context, emitter.finish(0, "Mul", {normal, emitter.input(1)}));
}

// In training the statistics are those of the whole batch; the channel is dimension 1.
RuleText batch_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  if (rank < 2) return std::nullopt;
  const bool training = view.op.int_attribute("training_mode", 0) != 0;
  std::vector<std::string> dims = {"n", "c"};
  for (std::size_t d = 2; d < rank; ++d) dims.push_back("s" + std::to_string(d - 2));
  for (std::size_t d = 0; d < rank; ++d) {
    if (training && d != 1) dims[d] += '~';
  }
  return join(dims) + ", c, c, c, c -> " + join(dims) + ", c, c";
}

// a * momentum + b * (1 - momentum)
ValueId finish_running(Emitter& emitter, std::size_t port, ValueId old, ValueId current,
                       double momentum) {
  const DType dtype = emitter.value(old).dtype;
  const ValueId kept = emitter.pointwise("Mul", {old, emitter.scalar(dtype, momentum)});
  const ValueId flat = emitter.cast(emitter.reshape(current, emitter.value(old).shape), dtype);
  const ValueId fresh = emitter.pointwise("Mul", {flat, emitter.scalar(dtype, 1 - momentum)});
  return emitter.finish(port, "Add", {kept, fresh});
}

Result<std::vector<ValueId>> split_batch(const LocalContext& context) {
  Emitter emitter(context);
  const Shape shape = emitter.value(emitter.input(0)).shape;
  std::vector<std::size_t> dims;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  Shape channels(shape.size(), 1);
  channels[1] = shape[1];
  const ValueId x = widened(emitter, emitter.input(0));
  const ValueId mean = shared_mean(context, emitter, x, dims);
  const ValueId centred = emitter.pointwise("Sub", {x, mean});
  const ValueId squares = emitter.pointwise("Mul", {centred, centred});
  const ValueId variance = shared_mean(context, emitter, squares, dims);
  const double epsilon = context.op.float_attribute("epsilon", 1e-5);
  const ValueId inverse = inverse_deviation(emitter, variance, epsilon);
  const DType dtype = emitter.value(x).dtype;
  const ValueId scale = emitter.cast(emitter.reshape(emitter.input(1), channels), dtype);
  const ValueId bias = emitter.cast(emitter.reshape(emitter.input(2), channels), dtype);
  const ValueId normal = emitter.pointwise("Mul", {centred, inverse});
  const ValueId moved = emitter.pointwise("Add", {emitter.pointwise("Mul", {normal, scale}), bias});
  std::vector<ValueId> outputs(context.op.outputs.size());
  outputs[0] = finish_cast(emitter, 0, moved);
  const double momentum = context.op.float_attribute("momentum", 0.9);
  if (emitter.has_output(1)) {
    outputs[1] = finish_running(emitter, 1, emitter.input(3), mean, momentum);
  }
  if (emitter.has_output(2)) {
    outputs[2] = finish_running(emitter, 2, emitter.input(4), variance, momentum);
  }
  return outputs;
}

// Means and variances of the parts become those of the whole in one exchange (Chan, Golub, LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979; all parts are
// equally large): the mean of the variances plus the variance of the means.
struct Statistics {
  ValueId shift;     // mean of the part less that of the whole
  ValueId variance;  // of the whole
};
Statistics joined(Emitter& emitter, ValueId mean, ValueId variance, const std::vector<int>& axes) {
  const Shape shape = emitter.value(mean).shape;
  const ValueId gathered = emitter.all_gather(emitter.concat({mean, variance}, 2), axes, 2);
  const ValueId table = emitter.reshape(gathered, {shape[0], shape[1], emitter.parts(axes), 2});
  const auto over_parts = [&](ValueId column) {
    return emitter.reshape(emitter.reduce("ReduceMean", column, {2}), shape);
  };
  const ValueId means = emitter.slice(table, 3, 0, 1);
  const ValueId whole = emitter.reduce("ReduceMean", means, {2});
  const ValueId apart = emitter.pointwise("Sub", {means, whole});
  const ValueId between = over_parts(emitter.pointwise("Mul", {apart, apart}));
  const ValueId within = over_parts(emitter.slice(table, 3, 1, 2));
  return {emitter.pointwise("Sub", {mean, emitter.reshape(whole, shape)}),
          emitter.pointwise("Add", {within, between})};
}

// The statistics are those of one image and channel.
Result<std::vector<ValueId>> split_instance(const LocalContext& context) {
  Emitter emitter(context);
  const Shape shape = emitter.value(emitter.input(0)).shape;
  std::vector<std::size_t> dims;
  for (std::size_t d = 2; d < shape.size(); ++d) dims.push_back(d);
  const ValueId x = widened(emitter, emitter.input(0));
  const ValueId mean = emitter.reduce("ReduceMean", x, dims);
  const ValueId centred = emitter.pointwise("Sub", {x, mean});
  const ValueId squares = emitter.pointwise("Mul", {centred, centred});
  const auto [shift, variance] = joined(emitter, mean, emitter.reduce("ReduceMean", squares, dims),
                                        emitter.axes_of(FactorKind::kExchange));
  const double epsilon = context.op.float_attribute("epsilon", 1e-5);
  const ValueId inverse = inverse_deviation(emitter, variance, epsilon);
  Shape channels(shape.size() - 1, 1);
  channels[0] = shape[1];
  const DType dtype = emitter.value(x).dtype;
  const ValueId scale = emitter.cast(emitter.reshape(emitter.input(1), channels), dtype);
  const ValueId bias = emitter.cast(emitter.reshape(emitter.input(2), channels), dtype);
  const ValueId factor = emitter.pointwise("Mul", {inverse, scale});
  const ValueId offset =
      emitter.pointwise("Add", {emitter.pointwise("Mul", {shift, factor}), bias});
  const ValueId scaled = emitter.pointwise("Mul", {centred, factor});
  return only_output(context, finish_cast(emitter, 0, emitter.pointwise("Add", {scaled, offset})));
}

RuleText instance_rule(const OpView& view) {
  std::vector<std::string> dims = {"n", "c"};
  for (std::size_t d = 2; d < view.in(0).size(); ++d) {
    dims.push_back("s" + std::to_string(d - 2) + "~");
  }
  return join(dims) + ", c, c -> " + join(dims);
}

// Channels are (group, channel of the group); scale and bias are per channel, or per group in the
// op's first version.
RuleText group_rule(const OpView& view) {
  const std::string groups = std::to_string(view.op.int_attribute("num_groups", 1));
  const std::string dims = "n (g=" + groups + " c^)" + whole_from(2, view.in(0));
  const bool per_channel = view.in(0).size() > 1 && view.in(1) == Shape{view.in(0)[1]};
  const std::string parameter = per_channel ? "(g c^)" : "g";
  return dims + ", " + parameter + ", " + parameter + " -> " + dims;
}

void set_groups(const LocalContext& context, Op& op) {
  const int group = context.rule.factor_index("g");
  if (group < 0) return;
  for (std::size_t a = 0; a < context.mesh.axes.size(); ++a) {
    if (context.assignment.factor_of_axis[a] != group) continue;
    op.attributes["num_groups"] = op.int_attribute("num_groups", 1) / context.mesh.axes[a].size;
  }
}

RuleText whole_axis_rule(const OpView& view) {
  std::vector<std::string> dims = dim_names(view.in(0).size());
  const auto axis = view.axis("axis", -1, dims.size());
  if (!axis) return std::nullopt;
  dims[*axis] = "_";
  return join(dims) + " -> " + join(dims);
}

RuleText mean_variance_rule(const OpView& view) {
  std::vector<std::string> dims = dim_names(view.in(0).size());
  for (std::int64_t axis : view.op.ints_attribute("axes", {0, 2, 3})) {
    const auto d = normal_axis(axis, dims.size());
    if (!d) return std::nullopt;
    dims[*d] = "_";
  }
  return join(dims) + " -> " + join(dims);
}

}  // namespace

std::span<const OpRow> normalisation_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "LayerNormalization",
       .rule = layer_rule,
       .flops_per_element = 8,
       .grad = layer_norm_grad,
       .split = split_layer},
      {.type = "RMSNormalization",
       .rule = layer_rule,
       .flops_per_element = 5,
       .grad = rms_norm_grad,
       .split = split_rms},
      {.type = "BatchNormalization",
       .rule = batch_rule,
       .flops_per_element = 4,
       .grad = batch_norm_grad,
       .split = split_batch},
      {.type = "InstanceNormalization",
       .rule = instance_rule,
       .flops_per_element = 8,
       .grad = instance_norm_grad,
       .split = split_instance},
      {.type = "GroupNormalization",
       .rule = group_rule,
       .flops_per_element = 8,
       .grad = group_norm_grad,
       .rewrite = set_groups},
      {.type = "LpNormalization",
       .rule = whole_axis_rule,
       .flops_per_element = 4,
       .grad = lp_norm_grad},
      {.type = "MeanVarianceNormalization",
       .rule = mean_variance_rule,
       .flops_per_element = 8,
       .grad = mean_variance_grad},
      {.type = "LRN",
       .text = "n _ ... -> n _ ...",
       .flops_per_element = 16,
       .grad = local_response_grad},
  };
  return rows;
}

}  // namespace autopar
