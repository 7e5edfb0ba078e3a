// Pools over spatial dimensions, which stay whole.
#include <vector>

#include "ops/emitter.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// " _ _": the dimensions after batch and channels.
std::string spatial(const Shape& shape) {
  std::string text;
  for (std::size_t d = 2; d < shape.size(); ++d) text += " _";
  return text;
}

RuleText pool_rule(const OpView& view) {
  if (view.in(0).size() < 3) return std::nullopt;
  return "n c" + spatial(view.in(0)) + " -> n c" + spatial(view.out(0));
}

RuleText linear_pool_rule(const OpView& view) {
  const RuleText text = pool_rule(view);
  return text ? RuleText(*text + " | partial: 0") : text;
}

// The second output has indices into the whole flattened input, batch and channels included.
RuleText max_pool_rule(const OpView& view) {
  if (!view.op.has_output(1)) return pool_rule(view);
  if (view.in(0).size() < 3) return std::nullopt;
  const std::string output = "n~ c~" + spatial(view.out(0));
  return "n~ c~" + spatial(view.in(0)) + " -> " + output + ", " + output;
}

// The places inside an image, plus where the image begins: a constant that is split as it is.
Result<std::vector<ValueId>> split_indexed_max_pool(const LocalContext& context) {
  Emitter emitter(context);
  const Shape& whole = context.graph.value(context.op.inputs[0]).shape;
  std::int64_t image = 1;
  for (std::size_t d = 2; d < whole.size(); ++d) image *= whole[d];
  Shape base_shape(whole.size(), 1);
  base_shape[0] = whole[0];
  base_shape[1] = whole[1];
  std::vector<std::int64_t> begins(static_cast<std::size_t>(whole[0] * whole[1]));
  for (std::size_t i = 0; i < begins.size(); ++i) begins[i] = static_cast<std::int64_t>(i) * image;
  ValueId base = emitter.constant(int64_tensor(base_shape, begins));
  base = emitter.own_part(base, emitter.axes_of_input(0, 0), 0);
  base = emitter.own_part(base, emitter.axes_of_input(0, 1), 1);

  const auto [pooled, local] = emitter.finish_first_of_two(context.op.attributes);
  const ValueId place =
      emitter.pointwise("Mod", {local, emitter.scalar(DType::kInt64, double(image))});
  return std::vector<ValueId>{pooled, emitter.finish(1, "Add", {place, base})};
}

// Sampled places are free of each other; images are whole.
RuleText grid_sample_rule(const OpView& view) {
  const std::string places =
      join(dim_names(view.in(0).size() - std::min<std::size_t>(view.in(0).size(), 2), "p"));
  return "n c" + spatial(view.in(0)) + ", n " + places + " _ -> n c " + places + " | partial: 0";
}

OpRow pool(const char* type, RuleFunction rule, double flops) {
  return {.type = type, .rule = rule, .flops_per_element = flops};
}

}  // namespace

std::span<const OpRow> pooling_rows() {
  static const std::vector<OpRow> rows = {
      pool("AveragePool", linear_pool_rule, 9),
      pool("GlobalAveragePool", linear_pool_rule, 1),
      pool("GlobalLpPool", pool_rule, 2),
      pool("GlobalMaxPool", pool_rule, 1),
      pool("LpPool", pool_rule, 18),
      {.type = "MaxPool",
       .rule = max_pool_rule,
       .flops_per_element = 9,
       .split = split_indexed_max_pool},
      {.type = "MaxRoiPool", .text = "_ c _ _, r _ -> r c _ _"},
      {.type = "RoiAlign", .text = "_ c _ _, r _, r -> r c _ _", .flops_per_element = 8},
      {.type = "GridSample", .rule = grid_sample_rule, .flops_per_element = 16},
  };
  return rows;
}

}  // namespace autopar
