// Pools over spatial dimensions. Those with windows are split as convolutions are (window.hpp).
#include <limits>
#include <vector>

#include "ops/grads/grads.hpp"
#include "ops/halo.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// " _ _": the dimensions after batch and channels.
// Pools over the whole image; `mark` is that of its dimensions.
RuleText image_rule(const OpView& view, char mark) {
  if (view.in(0).size() < 3) return std::nullopt;
  std::string image;
  for (std::size_t d = 2; d < view.in(0).size(); ++d) {
    image += " s" + std::to_string(d - 2) + mark;
  }
  return "n c" + image + " -> n c" + whole_from(2, view.out(0));
}

RuleText image_norm_rule(const OpView& view) { return image_rule(view, '^'); }
RuleText image_maximum_rule(const OpView& view) { return image_rule(view, '>'); }
RuleText image_mean_rule(const OpView& view) {
  const RuleText text = image_rule(view, '+');
  return text ? RuleText(*text + " | partial: 0") : text;
}

// Parts are equally large, so the mean is the mean of their means: a partial sum of scaled ones.
Result<std::vector<ValueId>> split_image_mean(const LocalContext& context) {
  Emitter emitter(context);
  const ValueId mean = emitter.add(context.op.type, context.inputs, emitter.output_dtype(0),
                                   emitter.output_shape(0), context.op.attributes);
  const double parts = double(emitter.parts(emitter.axes_of(FactorKind::kSum)));
  const ValueId scale = emitter.scalar(emitter.output_dtype(0), 1 / parts);
  return only_output(context, emitter.finish(0, "Mul", {mean, scale}));
}

RuleText window_rule(const OpView& view) {
  if (view.in(0).size() < 3) return std::nullopt;
  const SpatialWords words = spatial_words(view, view.op.ints_attribute("kernel_shape"));
  return "n c" + words.image + " -> n c" + words.output + words.sections;
}

RuleText linear_window_rule(const OpView& view) {
  const RuleText text = window_rule(view);
  return text ? RuleText(*text + " | partial: 0") : text;
}

// The second output has indices into the whole flattened input, batch and channels included.
RuleText max_pool_rule(const OpView& view) {
  if (!view.op.has_output(1)) return window_rule(view);
  if (view.in(0).size() < 3) return std::nullopt;
  const std::string output = "n~ c~" + whole_from(2, view.out(0));
  return "n~ c~" + whole_from(2, view.in(0)) + " -> " + output + ", " + output;
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

// The op on the part with its halo, which at the border of the image is `border`.
struct PooledHalo {
  std::vector<Window> windows;
  Extended extended;
  Attributes attributes;
};
PooledHalo pooled_halo(Emitter& emitter, const LocalContext& context, double border) {
  const OpShapes shapes = shapes_of(context.graph, context.op);
  auto windows = windows_of(context.op, shapes.inputs[0], shapes.outputs[0],
                            context.op.ints_attribute("kernel_shape"));
  AUTOPAR_CHECK(windows.has_value(), "a halo without windows: " + context.op.name);
  PooledHalo halo{std::move(*windows), {}, {}};
  halo.extended = with_halos(emitter, context, halo.windows, border);
  halo.attributes = without_halo_padding(context, halo.windows, halo.extended);
  return halo;
}

Result<std::vector<ValueId>> pool_with_halos(const LocalContext& context, double border) {
  Emitter emitter(context);
  const PooledHalo halo = pooled_halo(emitter, context, border);
  return only_output(context,
                     emitter.finish(0, context.op.type, {halo.extended.image}, halo.attributes));
}

// Less than anything in the image; integers saturate.
Result<std::vector<ValueId>> max_pool_with_halos(const LocalContext& context) {
  return pool_with_halos(context, -std::numeric_limits<double>::infinity());
}
Result<std::vector<ValueId>> norm_pool_with_halos(const LocalContext& context) {
  return pool_with_halos(context, 0);
}

// Of every output along one dimension the elements of its window over those that are no padding.
Tensor share_of_padding(const Window& window, DType dtype, std::size_t rank, std::size_t dim) {
  Shape shape(rank, 1);
  shape[dim] = window.output;
  Tensor shares{dtype, shape, {}};
  for (std::int64_t o = 0; o < window.output; ++o) {
    std::int64_t count = 0;
    for (std::int64_t k = 0; k < window.kernel; ++k) {
      const std::int64_t at = o * window.stride - window.before + k * window.dilation;
      count += at >= 0 && at < window.input;
    }
    shares.bytes += scalar_tensor(dtype, double(window.kernel) / double(count)).bytes;
  }
  return shares;
}

// Where padding does not count, the rows beyond the border must not either; the op takes them for
// rows of the image.
Result<std::vector<ValueId>> average_pool_with_halos(const LocalContext& context) {
  Emitter emitter(context);
  const PooledHalo halo = pooled_halo(emitter, context, 0);
  const Op& op = context.op;
  const DType dtype = emitter.output_dtype(0);
  std::vector<ValueId> corrections;
  for (std::size_t d : halo.extended.dims) {
    const Window& window = halo.windows[d];
    const bool padded = window.before + window.after > 0;
    if (!padded || op.int_attribute("count_include_pad", 0) != 0) continue;
    const std::size_t rank = emitter.output_shape(0).size();
    const ValueId shares = emitter.constant(share_of_padding(window, dtype, rank, d + 2));
    corrections.push_back(
        emitter.own_part(shares, emitter.axes_of_input(0, d + 2), static_cast<int>(d + 2)));
  }
  if (corrections.empty()) {
    return only_output(context, emitter.finish(0, op.type, {halo.extended.image}, halo.attributes));
  }
  ValueId average =
      emitter.add(op.type, {halo.extended.image}, dtype, emitter.output_shape(0), halo.attributes);
  for (std::size_t i = 0; i + 1 < corrections.size(); ++i) {
    average = emitter.pointwise("Mul", {average, corrections[i]});
  }
  return only_output(context, emitter.finish(0, "Mul", {average, corrections.back()}));
}

// Sampled places are free of each other; images are whole.
RuleText grid_sample_rule(const OpView& view) {
  const std::string places =
      join(dim_names(view.in(0).size() - std::min<std::size_t>(view.in(0).size(), 2), "p"));
  return "n c" + whole_from(2, view.in(0)) + ", n " + places + " _ -> n c " + places +
         " | partial: 0";
}

}  // namespace

std::span<const OpRow> pooling_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "AveragePool",
       .rule = linear_window_rule,
       .flops_per_element = 9,
       .grad = average_pool_grad,
       .halo = average_pool_with_halos},
      {.type = "GlobalAveragePool",
       .rule = image_mean_rule,
       .grad = global_average_pool_grad,
       .split = split_image_mean},
      {.type = "GlobalLpPool",
       .rule = image_norm_rule,
       .flops_per_element = 2,
       .grad = global_lp_pool_grad},
      {.type = "GlobalMaxPool", .rule = image_maximum_rule, .grad = global_max_pool_grad},
      {.type = "LpPool",
       .rule = window_rule,
       .flops_per_element = 18,
       .grad = lp_pool_grad,
       .halo = norm_pool_with_halos},
      {.type = "MaxPool",
       .rule = max_pool_rule,
       .flops_per_element = 9,
       .grad = max_pool_grad,
       .split = split_indexed_max_pool,
       .halo = max_pool_with_halos},
      {.type = "MaxRoiPool", .text = "_ c _ _, r _ -> r c _ _"},
      {.type = "RoiAlign",
       .text = "_ c _ _, r _, r -> r c _ _",
       .flops_per_element = 8,
       .grad = roi_align_grad},
      {.type = "GridSample",
       .rule = grid_sample_rule,
       .flops_per_element = 16,
       .grad = grid_sample_grad},
  };
  return rows;
}

}  // namespace autopar
