#include "ops/grads/slide.hpp"

#include <algorithm>

#include "ops/grads/contract.hpp"
#include "ops/window.hpp"

namespace autopar {
namespace {

// Where ONNX tells the extent of the output instead of the padding, the padding is what is left
// over; its odd row goes behind for SAME_UPPER, before otherwise.
void set_padding_from_output(const Op& op, Slide& slide) {
  const std::int64_t total =
      std::max<std::int64_t>((slide.places - 1) * slide.stride + slide.span() + 1 - slide.image, 0);
  const bool upper = op.string_attribute("auto_pad", "NOTSET") == "SAME_UPPER";
  slide.before = upper ? total / 2 : total - total / 2;
}

Attributes attributes_of(const Slides& slides, std::int64_t group, bool transposed) {
  std::vector<std::int64_t> strides, dilations, before, after, more;
  for (const Slide& slide : slides) {
    strides.push_back(slide.stride);
    dilations.push_back(slide.dilation);
    before.push_back(slide.before);
    after.push_back(std::max<std::int64_t>(slide.rest(), 0));
    more.push_back(std::max<std::int64_t>(-slide.rest(), 0));
  }
  const bool padded = std::any_of(more.begin(), more.end(), [](auto n) { return n > 0; });
  before.insert(before.end(), after.begin(), after.end());
  Attributes attributes = {{"strides", strides}, {"dilations", dilations}, {"pads", before}};
  if (group > 1) attributes["group"] = group;
  if (transposed && padded) attributes["output_padding"] = more;
  return attributes;
}

Shape spatial_shape(std::int64_t n, std::int64_t c, const Slides& slides,
                    std::int64_t Slide::*extent) {
  Shape shape = {n, c};
  for (const Slide& slide : slides) shape.push_back(slide.*extent);
  return shape;
}

// The same sum with places and kernel changed about.
Slides swapped(Slides slides) {
  for (Slide& slide : slides) {
    std::swap(slide.places, slide.kernel);
    std::swap(slide.stride, slide.dilation);
  }
  return slides;
}

ValueId exchange_first_two(GraphBuilder& to, ValueId value) {
  std::vector<std::size_t> perm(to.rank(value));
  for (std::size_t d = 0; d < perm.size(); ++d) perm[d] = d < 2 ? 1 - d : d;
  return to.transpose(value, perm);
}

// Windows of one row that no padding is in: a sum of products.
bool is_pointwise(const Slides& slides) {
  return std::all_of(slides.begin(), slides.end(), [](const Slide& slide) {
    return slide.kernel == 1 && slide.before == 0 && slide.rest() <= 0;
  });
}

// The rows of the image that windows of one row are.
ValueId read_rows(GraphBuilder& to, ValueId image, const Slides& slides) {
  std::vector<std::int64_t> begins, ends, dims, steps;
  Shape shape = to.shape(image);
  for (std::size_t d = 0; d < slides.size(); ++d) {
    if (slides[d].image == slides[d].places) continue;
    begins.push_back(0);
    ends.push_back((slides[d].places - 1) * slides[d].stride + 1);
    dims.push_back(static_cast<std::int64_t>(d + 2));
    steps.push_back(slides[d].stride);
    shape[d + 2] = slides[d].places;
  }
  if (dims.empty()) return image;
  return to.add("Slice", {image, to.ints(begins), to.ints(ends), to.ints(dims), to.ints(steps)},
                to.dtype(image), shape);
}

ValueId weigh_points(GraphBuilder& to, ValueId image, ValueId places, std::int64_t group,
                     const Slides& slides) {
  const std::int64_t c = to.shape(image)[1] / group, m = to.shape(places)[1] / group;
  const std::int64_t n = to.shape(image)[0];
  std::map<char, std::int64_t> extents = {{'n', n}, {'c', c}, {'m', m}};
  std::string rows;
  Shape image_shape = {n, c}, places_shape = {n, m}, target = {m, c};
  if (group > 1) {
    extents['g'] = group;
    for (Shape* shape : {&image_shape, &places_shape}) shape->insert(shape->begin() + 1, group);
    target.insert(target.begin(), group);
  }
  for (std::size_t d = 0; d < slides.size(); ++d) {
    rows += static_cast<char>('x' + static_cast<char>(d));
    extents[rows.back()] = slides[d].places;
    image_shape.push_back(slides[d].places);
    places_shape.push_back(slides[d].places);
  }
  const std::string g = group > 1 ? "g" : "";
  const ValueId read = to.reshape(read_rows(to, image, slides), image_shape);
  const ValueId sum = contract(
      to, {{to.reshape(places, places_shape), "n" + g + "m" + rows}, {read, "n" + g + "c" + rows}},
      g + "mc", extents, target);
  return to.reshape(sum, spatial_shape(group * m, c, slides, &Slide::kernel));
}

// One group after the other.
ValueId weigh_groups(GraphBuilder& to, ValueId image, ValueId places, std::int64_t group,
                     const Slides& slides) {
  const std::int64_t c = to.shape(image)[1] / group, m = to.shape(places)[1] / group;
  std::vector<ValueId> parts;
  for (std::int64_t i = 0; i < group; ++i) {
    parts.push_back(weigh_windows(to, to.slice(image, 1, i * c, (i + 1) * c),
                                  to.slice(places, 1, i * m, (i + 1) * m), 1, slides));
  }
  return to.concat(parts, 0);
}

// Every group of every image is a group of one convolution, and the images are summed afterwards.
ValueId weigh_images(GraphBuilder& to, ValueId image, ValueId places, std::int64_t group,
                     const Slides& slides) {
  const std::int64_t n = to.shape(image)[0];
  const std::int64_t c = to.shape(image)[1] / group, m = to.shape(places)[1] / group;
  ValueId channels = image;
  if (c > 1) {
    Shape apart = to.shape(image);
    apart[1] = group;
    apart.insert(apart.begin() + 2, c);
    std::vector<std::size_t> perm = {2, 0, 1};
    for (std::size_t d = 3; d < apart.size(); ++d) perm.push_back(d);
    channels = to.transpose(to.reshape(image, apart), perm);
  }
  channels = to.reshape(channels, spatial_shape(c, n * group, slides, &Slide::image));
  const ValueId kernels =
      to.reshape(places, spatial_shape(n * group * m, 1, slides, &Slide::places));
  const ValueId sums = gather_windows(to, channels, kernels, n * group, swapped(slides));
  Shape apart = spatial_shape(n, group * m, slides, &Slide::kernel);
  apart.insert(apart.begin(), c);
  const ValueId sum = to.reduce("ReduceSum", to.reshape(sums, apart), {1}, false);
  return c == 1 ? to.reshape(sum, spatial_shape(group * m, 1, slides, &Slide::kernel))
                : exchange_first_two(to, sum);
}

}  // namespace

std::optional<Slides> slides_of(const GradContext& context, const Shape& kernel) {
  Op op = context.op;
  const bool transposed = op.type == "ConvTranspose";
  const bool by_output =
      transposed && (!op.ints_attribute("output_shape").empty() ||
                     op.string_attribute("auto_pad", "NOTSET").substr(0, 4) == "SAME");
  const Shape image = context.in_shape(0), output = context.out_shape(0);
  std::optional<std::vector<Window>> windows;
  if (by_output) {
    // The strides and dilations alone, on extents that any padding fits.
    for (const char* name : {"output_shape", "auto_pad", "pads", "output_padding"}) {
      op.attributes.erase(name);
    }
    Shape full = image;
    for (std::size_t d = 0; d < kernel.size() && d + 2 < full.size(); ++d) {
      const auto at = [&](const char* name) {
        const std::vector<std::int64_t> values = op.ints_attribute(name);
        return d < values.size() ? values[d] : 1;
      };
      full[d + 2] = (image[d + 2] - 1) * at("strides") + (kernel[d] - 1) * at("dilations") + 1;
    }
    windows = windows_of(op, image, full, kernel);
  } else {
    windows = windows_of(op, image, output, kernel);
  }
  if (!windows) return std::nullopt;
  Slides slides;
  for (std::size_t d = 0; d < windows->size(); ++d) {
    const Window& window = (*windows)[d];
    Slide slide{image[d + 2],  output[d + 2],   window.kernel,
                window.stride, window.dilation, window.before};
    if (transposed) std::swap(slide.image, slide.places);
    if (by_output) set_padding_from_output(context.op, slide);
    slides.push_back(slide);
  }
  return slides;
}

ValueId gather_windows(GraphBuilder& to, ValueId image, ValueId weight, std::int64_t group,
                       const Slides& slides) {
  // Rows behind that would make further places.
  Slides cut = slides;
  for (std::size_t d = 0; d < cut.size(); ++d) {
    if (-cut[d].rest() < cut[d].stride) continue;
    cut[d].image += cut[d].rest();
    image = to.slice(image, d + 2, 0, cut[d].image);
  }
  const Shape shape =
      spatial_shape(to.shape(image)[0], to.shape(weight)[0], slides, &Slide::places);
  return to.add("Conv", {image, weight}, to.dtype(image), shape, attributes_of(cut, group, false));
}

ValueId spread_windows(GraphBuilder& to, ValueId places, ValueId weight, std::int64_t group,
                       const Slides& slides) {
  const Shape shape =
      spatial_shape(to.shape(places)[0], to.shape(weight)[1] * group, slides, &Slide::image);
  return to.add("ConvTranspose", {places, weight}, to.dtype(places), shape,
                attributes_of(slides, group, true));
}

ValueId weigh_windows(GraphBuilder& to, ValueId image, ValueId places, std::int64_t group,
                      const Slides& slides) {
  if (is_pointwise(slides)) return weigh_points(to, image, places, group, slides);
  if (group > 1) {
    const bool few = group <= 4 && to.shape(image)[1] > group;
    return few ? weigh_groups(to, image, places, group, slides)
               : weigh_images(to, image, places, group, slides);
  }
  const ValueId sum = gather_windows(to, exchange_first_two(to, image),
                                     exchange_first_two(to, places), 1, swapped(slides));
  return exchange_first_two(to, sum);
}

}  // namespace autopar
