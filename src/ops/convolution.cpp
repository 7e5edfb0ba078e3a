// Convolutions. Spatial dimensions may be split where every rank then needs as many rows of its
// neighbours (window.hpp), and be summed over where the kernel is as large as the image (the
// gradient of a weight).
#include <algorithm>
#include <vector>

#include "ops/grads/grads.hpp"
#include "ops/halo.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

std::string group_count(const OpView& view) {
  return std::to_string(std::max<std::int64_t>(view.op.int_attribute("group", 1), 1));
}

// The spatial extents of the kernel.
// The bias is a summand of every sum.
std::string bias_sections(const SpatialWords& words) {
  return " | partial: 0 2, 1 2 | summand c: 2" + words.sections;
}

RuleText conv_rule(const OpView& view) {
  if (view.in(0).size() < 3 || view.in(1).size() != view.in(0).size()) return std::nullopt;
  const SpatialWords words = spatial_words(view, kernel_of(view.in(1)));
  const std::string g = "g=" + group_count(view);
  return "n (" + g + " c+)" + words.image + ", (g m) c+" + words.kernel + ", (g m) -> n (g m)" +
         words.output + bias_sections(words);
}

// The weight is [input channels, output channels of a group, ...].
RuleText conv_transpose_rule(const OpView& view) {
  if (view.in(0).size() < 3 || view.in(1).size() != view.in(0).size()) return std::nullopt;
  const SpatialWords words = spatial_words(view, kernel_of(view.in(1)));
  const std::string g = "g=" + group_count(view);
  return "n (" + g + " c+)" + words.image + ", (g c+) m" + words.kernel + ", (g m) -> n (g m)" +
         words.output + bias_sections(words);
}

// Groups and kernels are those of the rank.
void adapt(const LocalContext& context, Op& op) {
  if (op.attributes.count("kernel_shape") != 0 && op.has_input(1)) {
    op.attributes["kernel_shape"] = kernel_of(context.program.value(context.inputs[1]).shape);
  }
  const int group = context.rule.factor_index("g");
  if (group < 0) return;
  std::int64_t parts = 1;
  for (std::size_t a = 0; a < context.mesh.axes.size(); ++a) {
    if (context.assignment.factor_of_axis[a] == group) parts *= context.mesh.axes[a].size;
  }
  if (parts > 1) op.attributes["group"] = op.int_attribute("group", 1) / parts;
}

Result<std::vector<ValueId>> convolve_with_halos(const LocalContext& context) {
  const OpShapes shapes = shapes_of(context.graph, context.op);
  const auto windows =
      windows_of(context.op, shapes.inputs[0], shapes.outputs[0], kernel_of(shapes.inputs[1]));
  AUTOPAR_CHECK(windows.has_value(), "a halo without windows: " + context.op.name);
  Emitter emitter(context);
  const Extended extended = with_halos(emitter, context, *windows, 0);
  Op local = context.op;
  local.inputs = context.inputs;
  local.inputs[0] = extended.image;
  local.attributes = without_halo_padding(context, *windows, extended);
  adapt(context, local);
  return emitter.finish_all(std::move(local));
}

Work conv_transpose_work(const Op& op, const OpShapes& shapes) {
  Work work = streaming_work(op, shapes);
  const Shape& kernel = shape_at(shapes.inputs, 1);
  if (kernel.empty() || kernel[0] == 0) return work;
  const double per_input = static_cast<double>(element_count(kernel) / kernel[0]);
  work.flops = 2 * per_input * elements_of(shapes.inputs, 0);
  return work;
}

}  // namespace

std::span<const OpRow> convolution_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "Conv",
       .rule = conv_rule,
       .work = conv_work<1>,
       .grad = convolution_grad,
       .rewrite = adapt,
       .halo = convolve_with_halos},
      {.type = "ConvTranspose",
       .rule = conv_transpose_rule,
       .work = conv_transpose_work,
       .grad = convolution_grad,
       .rewrite = adapt,
       .halo = convolve_with_halos},
  };
  return rows;
}

}  // namespace autopar
