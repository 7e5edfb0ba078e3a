// Windows that slide over an image, seen from the place of a window: what the gradients of
// convolutions and pools are made of.
//
//   window of place p: the image's rows  p * stride - before + k * dilation,  0 <= k < kernel
//
// A convolution sums image * weight over windows; its gradients are the same sum with the three
// parties changed about: by the image places * weight, by the weight places * image, where places
// and kernel swap their parts and with them stride and dilation.
#pragma once

#include <optional>
#include <vector>

#include "autopar/gradient.hpp"

namespace autopar {

// One spatial dimension.
struct Slide {
  std::int64_t image = 1, places = 1, kernel = 1;  // extents
  std::int64_t stride = 1, dilation = 1;
  std::int64_t before = 0;  // padding; what is behind follows from the extents

  std::int64_t span() const { return (kernel - 1) * dilation; }
  // Rows behind the image that its last window reaches; negative: rows that no window reaches.
  std::int64_t rest() const { return (places - 1) * stride + span() + 1 - before - image; }
};
using Slides = std::vector<Slide>;

// Of the convolution or pool that `context` is about. `kernel`: the extents of the kernel. Nothing
// where the attributes and the extents do not fit each other.
std::optional<Slides> slides_of(const GradContext& context, const Shape& kernel);

// image [n, group * c, ..], weight [group * m, c, kernel..] -> [n, group * m, places..]: a Conv.
ValueId gather_windows(GraphBuilder& to, ValueId image, ValueId weight, std::int64_t group,
                       const Slides& slides);
// places [n, group * m, ..], weight [group * m, c, kernel..] -> [n, group * c, image..]: a
// ConvTranspose.
ValueId spread_windows(GraphBuilder& to, ValueId places, ValueId weight, std::int64_t group,
                       const Slides& slides);
// image [n, group * c, ..], places [n, group * m, ..] -> [group * m, c, kernel..].
ValueId weigh_windows(GraphBuilder& to, ValueId image, ValueId places, std::int64_t group,
                      const Slides& slides);

}  // namespace autopar
