// Convolutions. Spatial dimensions stay whole, apart from two cases without a halo: kernels of one
// element that take every element, and kernels as large as the image (the gradient of a weight).
#include <algorithm>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

bool all_are(const std::vector<std::int64_t>& values, std::int64_t expected) {
  return std::all_of(values.begin(), values.end(), [&](auto v) { return v == expected; });
}

std::string group_count(const OpView& view) {
  return std::to_string(std::max<std::int64_t>(view.op.int_attribute("group", 1), 1));
}

bool unpadded(const OpView& view) {
  const std::string padding = view.op.string_attribute("auto_pad", "NOTSET");
  return (padding == "NOTSET" || padding == "VALID") &&
         all_are(view.op.ints_attribute("pads"), 0) &&
         all_are(view.op.ints_attribute("output_padding"), 0);
}

// Words for the spatial dimensions of image, kernel and output.
struct SpatialWords {
  std::string image, kernel, output;
  std::string sums;  // sections for those that are summed over
};

SpatialWords spatial_words(const OpView& view) {
  const Shape& image = view.in(0);
  const Shape& kernel = view.in(1);
  SpatialWords words;
  const bool plain = unpadded(view) && all_are(view.op.ints_attribute("dilations"), 1);
  const std::vector<std::int64_t> strides = view.op.ints_attribute("strides");
  for (std::size_t d = 2; d < image.size(); ++d) {
    const std::int64_t stride = d - 2 < strides.size() ? strides[d - 2] : 1;
    const std::string name = "s" + std::to_string(d - 2);
    const bool point = plain && kernel[d] == 1 && stride == 1;
    const bool whole_image = plain && view.op.type == "Conv" && kernel[d] == image[d];
    words.image += " " + (point ? name : whole_image ? name + "+" : "_");
    words.kernel += " " + (whole_image && !point ? name + "+" : "_");
    if (whole_image && !point) words.sums += " | summand " + name + ": 2";
    words.output += " " + (point ? name : "_");
  }
  return words;
}

// The bias is a summand of every sum.
std::string bias_sections(const SpatialWords& words) {
  return " | partial: 0 2, 1 2 | summand c: 2" + words.sums;
}

RuleText conv_rule(const OpView& view) {
  if (view.in(0).size() < 3 || view.in(1).size() != view.in(0).size()) return std::nullopt;
  const SpatialWords words = spatial_words(view);
  const std::string g = "g=" + group_count(view);
  return "n (" + g + " c+)" + words.image + ", (g m) c+" + words.kernel + ", (g m) -> n (g m)" +
         words.output + bias_sections(words);
}

// The weight is [input channels, output channels of a group, ...].
RuleText conv_transpose_rule(const OpView& view) {
  if (view.in(0).size() < 3 || view.in(1).size() != view.in(0).size()) return std::nullopt;
  const SpatialWords words = spatial_words(view);
  const std::string g = "g=" + group_count(view);
  return "n (" + g + " c+)" + words.image + ", (g c+) m" + words.kernel + ", (g m) -> n (g m)" +
         words.output + bias_sections(words);
}

void set_group(const LocalContext& context, Op& op) {
  const int group = context.rule.factor_index("g");
  if (group < 0) return;
  std::int64_t parts = 1;
  for (std::size_t a = 0; a < context.mesh.axes.size(); ++a) {
    if (context.assignment.factor_of_axis[a] == group) parts *= context.mesh.axes[a].size;
  }
  if (parts > 1) op.attributes["group"] = op.int_attribute("group", 1) / parts;
}

Work conv_work(const Op& op, const OpShapes& shapes) {
  Work work = streaming_work(op, shapes);
  const Shape& kernel = shape_at(shapes.inputs, 1);
  if (kernel.empty() || kernel[0] == 0) return work;
  const double per_output = static_cast<double>(element_count(kernel) / kernel[0]);
  work.flops = 2 * per_output * elements_of(shapes.outputs, 0);
  return work;
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
      {.type = "Conv", .rule = conv_rule, .work = conv_work, .rewrite = set_group},
      {.type = "ConvTranspose",
       .rule = conv_transpose_rule,
       .work = conv_transpose_work,
       .rewrite = set_group},
  };
  return rows;
}

}  // namespace autopar
