// Ops that take kernels or blocks of an image: these have the extents that attributes say, and fit.
#include <algorithm>
#include <array>

#include "io/import/shape_families.hpp"

namespace autopar {
namespace {

// Kernels have the extents that the attribute says, where it is there, and fit into the image.
Status check_kernel(ShapeCheck& check, std::size_t image,
                    const std::vector<std::string>& patterns) {
  const auto kernel = ints_of(check.node(), "kernel_shape");
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    check.set("kernel" + std::to_string(i), kernel[i], "kernel_shape is " + to_text(kernel));
  }
  const auto shape = check.shape(image), output = check.output();
  if (shape && shape->size() > 2) check.set_rest("kernel", shape->size() - 2);
  AUTOPAR_RETURN_IF_ERROR(match_all(check, patterns));
  if (!shape || !output || element_count(*shape) == 0) return Ok{};
  for (std::size_t d = 2; d < output->size(); ++d) {
    if ((*output)[d] > 0) continue;
    return input_error("dimension " + std::to_string(d) + " of its " + check.name_of_input(image) +
                       " is " + std::to_string((*shape)[d]) +
                       "; expected, with the padding, at least the extent of the kernel");
  }
  return Ok{};
}

Status check_conv(ShapeCheck& check) {
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*features channels kernel...", "group*features"});
}

// Where the padding is told to make the output as large as the strides say, runtimes make it so,
// and ONNX's inference adds what `output_padding` says.
Status check_conv_transpose(ShapeCheck& check) {
  const std::vector<std::int64_t> added = ints_of(check.node(), "output_padding");
  const bool adds = std::any_of(added.begin(), added.end(), [](std::int64_t n) { return n != 0; });
  for (const auto& attribute : check.node().attribute()) {
    if (!adds || attribute.name() != "auto_pad" || attribute.s().rfind("SAME", 0) != 0) continue;
    return input_error("attribute 'auto_pad' is " + attribute.s() + " and 'output_padding' " +
                       to_text(added) +
                       "; expected one of them, since runtimes disagree on both; say 'pads'");
  }
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*channels features kernel...", "group*features"});
}

Status check_conv_integer(ShapeCheck& check) {
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*features channels kernel...", "#", "# group*features"});
}

Status check_quantised_conv(ShapeCheck& check) {
  return check_kernel(check, 0,
                      {"batch group*channels ...", "#", "#", "group*features channels kernel...",
                       "# group*features", "# group*features", "#", "#", "group*features"});
}

Status check_deformable(ShapeCheck& check) {
  const auto output = check.output();
  if (output && output->size() == 4) {
    check.set("rows", (*output)[2], "its output is " + to_text(*output));
    check.set("columns", (*output)[3], "its output is " + to_text(*output));
  }
  return check_kernel(check, 0,
                      {"batch group*channels height width", "group*features channels kernel...",
                       "batch offset_group*2*kernel0*kernel1 rows columns", "group*features",
                       "batch offset_group*kernel0*kernel1 rows columns"});
}

// One affine matrix for each image of the size that is given: [N, C, H, W] or [N, C, D, H, W].
Status check_affine(ShapeCheck& check) {
  const auto size = check.ints(1);
  if (!size || (size->size() != 4 && size->size() != 5)) return check.match(1, "_");
  check.set("batch", size->front(), "size is " + to_text(*size));
  return check.match(0, size->size() == 4 ? "batch 2 3" : "batch 3 4");
}

// Columns are the places of a block in the padded image.
Status check_columns(ShapeCheck& check) {
  const auto image = check.ints(1), block = check.ints(2);
  if (!image || !block || image->size() != block->size()) return Ok{};
  const std::size_t dims = image->size();
  const auto of_dims = [&](const char* name, std::size_t count, std::int64_t otherwise) {
    auto numbers = ints_of(check.node(), name);
    return numbers.size() == count ? numbers : std::vector<std::int64_t>(count, otherwise);
  };
  const auto strides = of_dims("strides", dims, 1), dilations = of_dims("dilations", dims, 1);
  const auto pads = of_dims("pads", 2 * dims, 0);
  std::int64_t elements = 1, places = 1;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::array numbers = {(*image)[d], (*block)[d], pads[d], pads[d + dims], dilations[d]};
    const bool possible = std::all_of(numbers.begin(), numbers.end(), [](std::int64_t number) {
      return number >= 0 && number < (std::int64_t{1} << 30);
    });
    const std::int64_t span = possible ? dilations[d] * ((*block)[d] - 1) + 1 : 0;
    const std::int64_t room = possible ? (*image)[d] + pads[d] + pads[d + dims] - span : -1;
    if (room < 0 || (*block)[d] < 1) {
      return input_error("its block_shape is " + to_text(*block) +
                         "; expected one that fits into the padded image of image_shape " +
                         to_text(*image));
    }
    elements = bounded_product(elements, (*block)[d]);
    places = bounded_product(places, room / strides[d] + 1);
  }
  check.set("block", elements, "block_shape is " + to_text(*block));
  check.set("places", places,
            "image_shape is " + to_text(*image) + ", block_shape " + to_text(*block));
  return check.match(0, "batch block*channels places");
}

// A window that lies in the padding alone has no elements.
Status check_pool(ShapeCheck& check) {
  const auto kernel = ints_of(check.node(), "kernel_shape"), pads = ints_of(check.node(), "pads");
  for (std::size_t i = 0; i < pads.size() && !kernel.empty(); ++i) {
    if (pads[i] < kernel[i % kernel.size()]) continue;
    return input_error("attribute 'pads' is " + to_text(pads) +
                       "; expected less than kernel_shape " + to_text(kernel) + " everywhere");
  }
  return Ok{};
}

}  // namespace

const ShapeChecks& image_checks() {
  static const ShapeChecks checks = {
      {"AffineGrid", check_affine},
      {"AveragePool", check_pool},
      {"Col2Im", check_columns},
      {"Conv", check_conv},
      {"ConvInteger", check_conv_integer},
      {"ConvTranspose", check_conv_transpose},
      {"DeformConv", check_deformable},
      {"LpPool", check_pool},
      {"MaxPool", check_pool},
      {"QLinearConv", check_quantised_conv},
  };
  return checks;
}

}  // namespace autopar
