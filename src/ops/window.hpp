// Windows that slide over the image of a convolution or a pool: how a spatial dimension may be
// split, and what a part of it is padded with.
//
// Rank r of p has the rows [rL, (r+1)L) of the input and makes the rows [rM, (r+1)M) of the output.
// A window of the output row o begins at o * stride - before and ends `span` further on. Where
// L = M * stride, every rank needs as many rows before and after its own as any other: `before` and
// span + 1 - stride - before. Elsewhere (an image that shrinks without padding) the windows of rank
// r begin r * (L - M * stride) rows further to the front. A transposed window is the same with the
// two sides changed about: M = L * stride, and row i is added to the rows i * stride - before up to
// `span` further on; with other extents it is not split.
#pragma once

#include <string>
#include <vector>

#include "ops/table.hpp"

namespace autopar {

// One spatial dimension.
struct Window {
  bool transposed = false;
  std::int64_t input = 1, output = 1;  // whole extents
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t kernel = 1;
  std::int64_t before = 0, after = 0;  // padding
  std::int64_t output_padding = 0;
  bool ceiling = false;  // ceil_mode

  std::int64_t span() const { return (kernel - 1) * dilation; }
  // Rows by which the windows of all parts together begin further to the front.
  std::int64_t drift() const { return transposed ? 0 : input - output * stride; }
};
// The extents of the kernel, by the shape of a convolution's weight.
inline Shape kernel_of(const Shape& weight) {
  return weight.size() < 2 ? Shape() : Shape(weight.begin() + 2, weight.end());
}

// Of a convolution whose weight is input kWeight.
template <std::size_t kWeight>
Work conv_work(const Op& op, const OpShapes& shapes) {
  Work work = streaming_work(op, shapes);
  const Shape& kernel = shape_at(shapes.inputs, kWeight);
  if (kernel.empty() || kernel[0] == 0) return work;
  const double per_output = static_cast<double>(element_count(kernel) / kernel[0]);
  work.flops = 2 * per_output * elements_of(shapes.outputs, 0);
  return work;
}

// `kernel`: the extents of the kernel. Nothing where the attributes and the extents do not fit each
// other, or where ONNX leaves the padding to the runtime (output_shape).
std::optional<std::vector<Window>> windows_of(const Op& op, const Shape& image, const Shape& output,
                                              const Shape& kernel);

// Rows that a rank needs of its neighbours, at most.
struct Halo {
  std::int64_t before = 0, after = 0;
};
// Nothing where the dimension must stay whole.
std::optional<Halo> halo_of(const Window& window);

// What is left of the padding where a rank has its halo.
struct LocalPadding {
  std::int64_t before = 0, after = 0, output_padding = 0;
};
LocalPadding local_padding(const Window& window, const Halo& halo, std::int64_t local_input);

// Words of a rule for the spatial dimensions, each with a space before it.
struct SpatialWords {
  std::string image, kernel, output;
  std::string sections;  // halos, summands
};
// "s0" where a dimension is split into parts of one row, "(s0 r0^=2)" into parts of two; of an
// output
// "(s0 q0^=2)".
SpatialWords spatial_words(const OpView& view, const Shape& kernel);

}  // namespace autopar
