#include "ops/window.hpp"

#include <algorithm>
#include <numeric>

namespace autopar {
namespace {

std::int64_t entry(const std::vector<std::int64_t>& values, std::size_t i, std::int64_t fallback) {
  return i < values.size() ? values[i] : fallback;
}

// Of what nobody means the numbers could not be multiplied.
constexpr std::int64_t kLargest = std::int64_t{1} << 30;

bool sensible(const Window& w) {
  const auto within = [](std::int64_t least, std::int64_t value) {
    return value >= least && value <= kLargest;
  };
  return within(1, w.input) && within(1, w.output) && within(1, w.stride) &&
         within(1, w.dilation) && within(1, w.kernel) && within(0, w.output_padding);
}

// Sets `before` and `after`; false where the attributes do not tell.
bool read_padding(const Op& op, std::size_t d, std::size_t dims, Window& window) {
  const std::string automatic = op.string_attribute("auto_pad", "NOTSET");
  if (automatic == "VALID") return true;
  if (automatic == "NOTSET") {
    const std::vector<std::int64_t> pads = op.ints_attribute("pads");
    window.before = entry(pads, d, 0);
    window.after = entry(pads, d + dims, 0);
    return window.before >= 0 && window.after >= 0 && window.before <= kLargest &&
           window.after <= kLargest;
  }
  if (window.transposed) return false;
  const std::int64_t total = std::max<std::int64_t>(
      (window.output - 1) * window.stride + window.span() + 1 - window.input, 0);
  window.before = automatic == "SAME_LOWER" ? total - total / 2 : total / 2;
  window.after = total - window.before;
  return true;
}

bool fits(const Window& w) {
  const std::int64_t padding = w.before + w.after;
  if (w.transposed) {
    return w.output == (w.input - 1) * w.stride + w.output_padding + w.span() + 1 - padding;
  }
  const std::int64_t room = w.input + padding - w.span() - 1;
  if (room < 0) return false;
  return w.ceiling || w.output == room / w.stride + 1;
}

// ceil_mode makes an output of a window that lies partly beyond the padding.
bool rounds_up(const Window& w) {
  return w.ceiling && (w.input + w.before + w.after - w.span() - 1) % w.stride != 0;
}

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Whether the dimension has a word of its own as the only thing that is summed over: a kernel as
// large as the image (the gradient of a weight).
bool covers_image(const OpView& view, const Window& window) {
  return view.op.type == "Conv" && window.kernel == window.input && window.output == 1 &&
         window.before == 0 && window.after == 0 && window.dilation == 1;
}

std::string word(const std::string& name, const std::string& inner, std::int64_t size) {
  if (size == 1) return " " + name;
  return " (" + name + " " + inner + "^=" + std::to_string(size) + ")";
}

}  // namespace

std::optional<std::vector<Window>> windows_of(const Op& op, const Shape& image, const Shape& output,
                                              const Shape& kernel) {
  if (image.size() < 3 || output.size() != image.size() || kernel.size() + 2 != image.size() ||
      !op.ints_attribute("output_shape").empty()) {
    return std::nullopt;
  }
  const std::size_t dims = kernel.size();
  std::vector<Window> windows(dims);
  for (std::size_t d = 0; d < dims; ++d) {
    Window& window = windows[d];
    window.transposed = op.type == "ConvTranspose";
    window.input = image[d + 2];
    window.output = output[d + 2];
    window.stride = entry(op.ints_attribute("strides"), d, 1);
    window.dilation = entry(op.ints_attribute("dilations"), d, 1);
    window.kernel = kernel[d];
    window.output_padding = entry(op.ints_attribute("output_padding"), d, 0);
    window.ceiling = op.int_attribute("ceil_mode", 0) != 0;
    if (!sensible(window) || !read_padding(op, d, dims, window) || !fits(window)) {
      return std::nullopt;
    }
  }
  return windows;
}

std::optional<Halo> halo_of(const Window& w) {
  if (std::gcd(w.input, w.output) == 1) return std::nullopt;
  if (w.transposed) {
    if (w.output != w.input * w.stride) return std::nullopt;
    return Halo{std::max<std::int64_t>(floor_div(w.span() - w.before, w.stride), 0),
                (w.before + w.stride - 1) / w.stride};
  }
  // More padding than a window is wide would make outputs of nothing but padding.
  if (w.before > w.span() || rounds_up(w)) return std::nullopt;
  const std::int64_t drift = w.drift();
  const std::int64_t after = w.span() + 1 - w.stride - w.before + std::max<std::int64_t>(-drift, 0);
  const Halo halo{w.before + std::max<std::int64_t>(drift, 0), std::max<std::int64_t>(after, 0)};
  // Without a halo the op runs as it is on every part, and so must have its windows at the same
  // rows.
  if (drift != 0 && halo.before + halo.after == 0) return std::nullopt;
  return halo;
}

LocalPadding local_padding(const Window& w, const Halo& halo, std::int64_t local_input) {
  if (!w.transposed) return {};
  // What the rows with their halos are added to reaches further than the rank's part of the output.
  const std::int64_t rows = halo.before + local_input + halo.after;
  const std::int64_t before = w.before + halo.before * w.stride;
  const std::int64_t after = (rows - 1) * w.stride + w.span() + 1 - before - local_input * w.stride;
  return {before, std::max<std::int64_t>(after, 0), std::max<std::int64_t>(-after, 0)};
}

SpatialWords spatial_words(const OpView& view, const Shape& kernel) {
  const auto windows = windows_of(view.op, view.in(0), view.out(0), kernel);
  SpatialWords words;
  for (std::size_t d = 0; d + 2 < view.in(0).size(); ++d) {
    const std::string name = "s" + std::to_string(d);
    const std::optional<Halo> halo = windows ? halo_of((*windows)[d]) : std::nullopt;
    if (windows && covers_image(view, (*windows)[d])) {
      words.image += " " + name + "+";
      words.kernel += " " + name + "+";
      words.output += " _";
      words.sections += " | summand " + name + ": 2";
    } else if (halo) {
      const std::int64_t parts = std::gcd(view.in(0)[d + 2], view.out(0)[d + 2]);
      words.image += word(name, "r" + std::to_string(d), view.in(0)[d + 2] / parts);
      words.kernel += " _";
      words.output += word(name, "q" + std::to_string(d), view.out(0)[d + 2] / parts);
      if (halo->before + halo->after > 0) {
        words.sections += " | halo " + name + ": " + std::to_string(halo->before) + " " +
                          std::to_string(halo->after);
      }
    } else {
      words.image += " _";
      words.kernel += " _";
      words.output += " _";
    }
  }
  return words;
}

}  // namespace autopar
