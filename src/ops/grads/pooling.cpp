// Gradients of pools.
#include <algorithm>
#include <numeric>

#include "ops/grads/grads.hpp"
#include "ops/grads/slide.hpp"

namespace autopar {
namespace {

constexpr const char* kPadding = "where its padding does not fit its extents";

std::optional<Slides> pool_slides(const GradContext& context) {
  return slides_of(context, context.op.ints_attribute("kernel_shape"));
}

std::vector<std::size_t> spatial_dims(const GradContext& context) {
  std::vector<std::size_t> dims(context.in_shape(0).size() - 2);
  std::iota(dims.begin(), dims.end(), std::size_t{2});
  return dims;
}

double image_size(const GradContext& context) {
  double size = 1;
  for (std::size_t d : spatial_dims(context)) {
    size *= static_cast<double>(context.in_shape(0)[d]);
  }
  return size;
}

Tensor vector_tensor(DType dtype, Shape shape, const std::vector<double>& numbers) {
  Tensor tensor{dtype, std::move(shape), {}};
  for (double number : numbers) tensor.bytes += scalar_tensor(dtype, number).bytes;
  return tensor;
}

// Every place's value added to the whole image under its window.
ValueId spread_evenly(GraphBuilder& to, ValueId places, const Slides& slides) {
  const std::int64_t channels = to.shape(places)[1];
  const bool tiles = std::all_of(slides.begin(), slides.end(), [](const Slide& slide) {
    return slide.stride == slide.kernel && slide.before == 0 && slide.rest() <= 0 &&
           (slide.dilation == 1 || slide.kernel == 1);
  });
  if (!tiles) {
    Shape kernel = {channels, 1};
    for (const Slide& slide : slides) kernel.push_back(slide.kernel);
    const std::vector<double> ones(static_cast<std::size_t>(element_count(kernel)), 1);
    const ValueId weight = to.constant(vector_tensor(to.dtype(places), kernel, ones));
    return spread_windows(to, places, weight, channels, slides);
  }
  // Windows side by side: repeated.
  Shape apart = {to.shape(places)[0], channels}, repeated = apart, joined = apart;
  std::vector<std::int64_t> none(apart.size() + slides.size()), behind = none;
  for (std::size_t d = 0; d < slides.size(); ++d) {
    apart.insert(apart.end(), {slides[d].places, 1});
    repeated.insert(repeated.end(), {slides[d].places, slides[d].kernel});
    joined.push_back(slides[d].places * slides[d].kernel);
    behind[d + 2] = -slides[d].rest();
  }
  const ValueId wide = to.broadcast_to(to.reshape(places, apart), repeated);
  return to.pad(to.reshape(wide, joined), none, behind);
}

// The gradient over how many elements its average is of; a factor per dimension.
ValueId shares_of(const GradContext& context, const Slides& slides) {
  GraphBuilder& to = context.to;
  const bool padding_counts = context.op.int_attribute("count_include_pad", 0) != 0;
  const std::vector<std::int64_t> pads = context.op.ints_attribute("pads");
  ValueId share = context.grad();
  double even = 1;
  for (std::size_t d = 0; d < slides.size(); ++d) {
    const Slide& slide = slides[d];
    // Places of ceil_mode may reach beyond the padding, which never counts.
    std::int64_t behind = std::max<std::int64_t>(slide.rest(), 0);
    if (d + slides.size() < pads.size())
      behind = std::min(behind, pads[d + slides.size()]);
    else if (context.op.string_attribute("auto_pad", "NOTSET").substr(0, 4) != "SAME")
      behind = 0;
    std::vector<double> shares;
    for (std::int64_t place = 0; place < slide.places; ++place) {
      double count = 0;
      for (std::int64_t k = 0; k < slide.kernel; ++k) {
        const std::int64_t row = place * slide.stride - slide.before + k * slide.dilation;
        count += padding_counts ? row < slide.image + behind : row >= 0 && row < slide.image;
      }
      shares.push_back(1 / std::max(count, 1.0));
    }
    if (std::all_of(shares.begin(), shares.end(), [&](double s) { return s == shares[0]; })) {
      even *= shares[0];
      continue;
    }
    Shape shape(slides.size() + 2, 1);
    shape[d + 2] = slide.places;
    const ValueId factor = to.constant(vector_tensor(to.dtype(share), shape, shares));
    share = to.pointwise("Mul", {share, factor});
  }
  return to.scaled(share, even);
}

// d|x|^p / dx = p |x|^(p-1) sign(x), without the p.
ValueId power_slope(GraphBuilder& to, ValueId x, std::int64_t p) {
  if (p == 2) return x;
  const ValueId sign = to.pointwise("Sign", {x});
  if (p == 1) return sign;
  const ValueId exponent = to.scalar(to.dtype(x), static_cast<double>(p - 1));
  const ValueId power = to.pointwise("Pow", {to.pointwise("Abs", {x}), exponent});
  return to.pointwise("Mul", {power, sign});
}

// g * y^(1-p), where y is a norm; 0 where that is 0.
ValueId norm_share(GraphBuilder& to, ValueId g, ValueId y, std::int64_t p) {
  if (p == 1) return g;
  const ValueId none = to.test("Equal", {y, to.scalar(to.dtype(y), 0)});
  ValueId norm = to.pointwise("Where", {none, to.scalar(to.dtype(y), 1), y});
  if (p > 2) {
    const ValueId exponent = to.scalar(to.dtype(y), static_cast<double>(p - 1));
    norm = to.pointwise("Pow", {norm, exponent});
  }
  return to.pointwise("Div", {g, norm});
}

bool overlap(const Slides& slides) {
  return std::any_of(slides.begin(), slides.end(),
                     [](const Slide& slide) { return slide.stride <= slide.span(); });
}

}  // namespace

Result<InputGrads> average_pool_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  const auto slides = pool_slides(context);
  if (!slides) return no_gradient(context, kPadding);
  return only_input(context, 0, spread_evenly(context.to, shares_of(context, *slides), *slides));
}

// The second output tells where each maximum was, counted through the whole input.
Result<InputGrads> max_pool_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  const auto slides = pool_slides(context);
  if (!slides) return no_gradient(context, kPadding);
  GraphBuilder& to = context.to;
  const ValueId found = context.output(1, DType::kInt64, context.out_shape(0));
  const Shape input = context.in_shape(0), output = context.out_shape(0);
  const auto image = static_cast<std::int64_t>(image_size(context));
  const Shape rows = {output[0], output[1], element_count({output.begin() + 2, output.end()})};
  const ValueId inside =
      to.pointwise("Mod", {found, to.scalar(DType::kInt64, static_cast<double>(image))});
  const DType dtype = to.dtype(context.grad());
  Attributes attributes = {{"axis", std::int64_t{2}}};
  if (overlap(*slides)) attributes["reduction"] = std::string("add");
  const Shape flat = {input[0], input[1], image};
  const ValueId sum = to.add(
      "ScatterElements",
      {to.filled(dtype, flat, 0), to.reshape(inside, rows), to.reshape(context.grad(), rows)},
      dtype, flat, attributes);
  if (context.op.int_attribute("storage_order", 0) == 0) {
    return only_input(context, 0, to.reshape(sum, input));
  }
  // Column-major: the image is told with its dimensions the other way round.
  Shape turned = input;
  std::reverse(turned.begin() + 2, turned.end());
  std::vector<std::size_t> perm(input.size());
  std::iota(perm.begin(), perm.end(), std::size_t{0});
  std::reverse(perm.begin() + 2, perm.end());
  return only_input(context, 0, to.transpose(to.reshape(sum, turned), perm));
}

Result<InputGrads> lp_pool_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  const auto slides = pool_slides(context);
  if (!slides) return no_gradient(context, kPadding);
  GraphBuilder& to = context.to;
  const std::int64_t p = context.op.int_attribute("p", 2);
  const ValueId share = norm_share(to, context.grad(), context.out(0), p);
  const ValueId sum = spread_evenly(to, share, *slides);
  return only_input(context, 0, to.pointwise("Mul", {sum, power_slope(to, context.in(0), p)}));
}

Result<InputGrads> global_average_pool_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  const ValueId share = context.to.scaled(context.grad(), 1 / image_size(context));
  return only_input(context, 0, context.to.broadcast_to(share, context.in_shape(0)));
}

// Elements that are equally large share the gradient.
Result<InputGrads> global_max_pool_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  GraphBuilder& to = context.to;
  const ValueId same = to.test("Equal", {context.in(0), context.out(0)});
  const ValueId hit = to.cast(same, to.dtype(context.in(0)));
  const ValueId count = to.reduce("ReduceSum", hit, spatial_dims(context));
  const ValueId share = to.pointwise("Div", {context.grad(), count});
  return only_input(context, 0, to.pointwise("Mul", {hit, share}));
}

Result<InputGrads> global_lp_pool_grad(const GradContext& context) {
  if (!context.grad().valid()) return InputGrads(1);
  GraphBuilder& to = context.to;
  const std::int64_t p = context.op.int_attribute("p", 2);
  const ValueId share = norm_share(to, context.grad(), context.out(0), p);
  return only_input(context, 0, to.pointwise("Mul", {power_slope(to, context.in(0), p), share}));
}

}  // namespace autopar
