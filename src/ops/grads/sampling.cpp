#include "ops/grads/sampling.hpp"

#include <array>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// Coefficients of 1, t, t^2, t^3 for every tap.
std::vector<std::array<double, 4>> coefficients(const std::string& mode) {
  if (mode == "nearest") return {{1, 0, 0, 0}};
  if (mode == "linear") return {{1, -1, 0, 0}, {0, 1, 0, 0}};
  constexpr double a = -0.75;
  return {{0, a, -2 * a, a}, {1, 0, -(a + 3), a + 2}, {0, -a, 2 * a + 3, -(a + 2)}, {0, 0, a, -a}};
}

Tensor column(DType dtype, const std::vector<double>& numbers) {
  Tensor tensor{dtype, {1, static_cast<std::int64_t>(numbers.size()), 1}, {}};
  for (double number : numbers) tensor.bytes += scalar_tensor(dtype, number).bytes;
  return tensor;
}

}  // namespace

Sampler::Sampler(GraphBuilder& to, ValueId image, const std::vector<ValueId>& places, Sampling how)
    : to_(to),
      image_(image),
      shape_(to.shape(image)),
      dtype_(to.dtype(image)),
      how_(std::move(how)),
      places_(to.shape(places[0])[2]) {
  std::vector<std::int64_t> strides(places.size(), 1);
  for (std::size_t d = places.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape_[d + 3];
  for (std::size_t d = 0; d < places.size(); ++d) {
    taps_.push_back(taps_of(places[d], shape_[d + 2]));
    all_ *= to_.shape(taps_[d].index)[1];
  }
  ValueId sum;
  for (std::size_t d = 0; d < places.size(); ++d) {
    const ValueId part = to_.scaled(spread(taps_[d].index, d), static_cast<double>(strides[d]));
    sum = sum.valid() ? to_.pointwise("Add", {sum, part}) : part;
  }
  indices_ = to_.broadcast_to(to_.reshape(sum, {shape_[0], 1, all_ * places_}),
                              {shape_[0], shape_[1], all_ * places_});
}

// A wave that goes up and down between the borders.
ValueId Sampler::reflected(ValueId place, std::int64_t extent) {
  const double low = how_.align_corners ? 0 : -0.5;
  const double range = static_cast<double>(extent) - (how_.align_corners ? 1 : 0);
  if (range == 0) return to_.scaled(place, 0);
  const ValueId from = to_.pointwise("Sub", {place, number(low)});
  const ValueId rounds = to_.pointwise("Floor", {to_.scaled(from, 0.5 / range)});
  const ValueId within = to_.pointwise("Sub", {from, to_.scaled(rounds, 2 * range)});
  const ValueId down = to_.pointwise("Sub", {number(2 * range), within});
  const ValueId turned = to_.pointwise("Min", {within, down});
  return to_.pointwise("Add", {turned, number(low)});
}

ValueId Sampler::polynomial(ValueId t, std::size_t taps, bool slope) {
  const auto table = coefficients(how_.mode);
  ValueId sum, power;
  for (std::size_t degree = 0; degree + (slope ? 1 : 0) < 4; ++degree) {
    if (degree == 1) power = t;
    if (degree > 1) power = to_.pointwise("Mul", {power, t});
    std::vector<double> factors;
    bool any = false;
    for (std::size_t tap = 0; tap < taps; ++tap) {
      const double factor = table[tap][degree + (slope ? 1 : 0)];
      factors.push_back(slope ? factor * static_cast<double>(degree + 1) : factor);
      any = any || factors.back() != 0;
    }
    if (!any) continue;
    const ValueId factor = to_.constant(column(dtype_, factors));
    const ValueId term = degree == 0 ? factor : to_.pointwise("Mul", {factor, power});
    sum = sum.valid() ? to_.pointwise("Add", {sum, term}) : term;
  }
  return sum.valid() ? to_.broadcast_to(sum, {shape_[0], static_cast<std::int64_t>(taps), places_})
                     : sum;
}

Sampler::Taps Sampler::taps_of(ValueId place, std::int64_t extent) {
  const double last = static_cast<double>(extent - 1);
  const double low = how_.align_corners ? 0 : -0.5;
  ValueId steep;  // of the place that is read by the one that is told
  ValueId at = how_.mode == "nearest" ? to_.pointwise("Round", {place}) : place;
  // Runtimes clamp the taps of cubic kernels alone, not the place.
  if (how_.padding == "border" && how_.mode != "cubic") {
    const ValueId low_test = to_.test("Less", {at, number(low)});
    const ValueId high_test = to_.test("Greater", {at, number(last - low)});
    const ValueId beyond = to_.add("Or", {low_test, high_test}, DType::kBool, to_.shape(at));
    const ValueId clamped = to_.pointwise("Clip", {at, number(0), number(last)});
    steep = to_.pointwise("Where", {beyond, number(0), number(1)});
    at = to_.pointwise("Where", {beyond, clamped, at});
  } else if (how_.padding == "reflection") {
    const ValueId turned = reflected(at, extent);
    // Ahead where a step ahead leads ahead: the wave less what came in is a whole number of rounds.
    const double range = static_cast<double>(extent) - (how_.align_corners ? 1 : 0);
    const ValueId from = to_.pointwise("Sub", {at, number(low)});
    const ValueId half = to_.pointwise("Floor", {to_.scaled(from, range == 0 ? 0 : 1 / range)});
    const ValueId pairs = to_.scaled(to_.pointwise("Floor", {to_.scaled(half, 0.5)}), 2);
    const ValueId odd = to_.pointwise("Sub", {half, pairs});
    steep = to_.pointwise("Sub", {number(1), to_.scaled(odd, 2)});
    if (range == 0) steep = to_.scaled(steep, 0);
    at = turned;
  }
  const std::size_t taps = coefficients(how_.mode).size();
  const ValueId floor = to_.pointwise("Floor", {at});
  const ValueId t = to_.pointwise("Sub", {at, floor});
  std::vector<double> offsets;
  for (std::size_t tap = 0; tap < taps; ++tap) {
    offsets.push_back(static_cast<double>(tap) - (taps == 4 ? 1 : 0));
  }
  ValueId rows = to_.pointwise("Add", {floor, to_.constant(column(dtype_, offsets))});
  Taps made = {{}, polynomial(t, taps, false), polynomial(t, taps, true)};
  if (steep.valid() && made.slope.valid()) made.slope = to_.pointwise("Mul", {made.slope, steep});
  if (how_.padding == "reflection") rows = reflected(rows, extent);
  const ValueId inside = to_.pointwise("Clip", {rows, number(0), number(last)});
  if (how_.padding == "zeros") {
    const ValueId there = to_.cast(to_.test("Equal", {rows, inside}), dtype_);
    made.weight = to_.pointwise("Mul", {made.weight, there});
    if (made.slope.valid()) made.slope = to_.pointwise("Mul", {made.slope, there});
  }
  made.index = to_.cast(inside, DType::kInt64);
  return made;
}

ValueId Sampler::spread(ValueId taps, std::size_t d) {
  Shape shape(shape_.size(), 1);
  shape[0] = shape_[0];
  shape[d + 1] = to_.shape(taps)[1];
  shape.back() = places_;
  return to_.reshape(taps, shape);
}

ValueId Sampler::weights(std::size_t steep) {
  ValueId product;
  for (std::size_t d = 0; d < taps_.size(); ++d) {
    const ValueId factor = spread(d == steep ? taps_[d].slope : taps_[d].weight, d);
    product = product.valid() ? to_.pointwise("Mul", {product, factor}) : factor;
  }
  return to_.reshape(product, {shape_[0], 1, all_, places_});
}

ValueId Sampler::read() {
  if (read_.valid()) return read_;
  std::int64_t size = 1;
  for (std::size_t d = 2; d < shape_.size(); ++d) size *= shape_[d];
  const ValueId flat = to_.reshape(image_, {shape_[0], shape_[1], size});
  const ValueId read = to_.add("GatherElements", {flat, indices_}, dtype_, to_.shape(indices_),
                               {{"axis", std::int64_t{2}}});
  read_ = to_.reshape(read, {shape_[0], shape_[1], all_, places_});
  return read_;
}

ValueId Sampler::values() {
  if (!values_.valid()) {
    const ValueId weighted = to_.pointwise("Mul", {read(), weights(kNone)});
    values_ = to_.reduce("ReduceSum", weighted, {2}, false);
  }
  return values_;
}

ValueId Sampler::image_grad(ValueId grad) {
  std::int64_t size = 1;
  for (std::size_t d = 2; d < shape_.size(); ++d) size *= shape_[d];
  const ValueId each = to_.unsqueeze(grad, 2);
  const ValueId updates =
      to_.reshape(to_.pointwise("Mul", {each, weights(kNone)}), to_.shape(indices_));
  const Shape flat = {shape_[0], shape_[1], size};
  const ValueId zeros = to_.filled(dtype_, flat, 0);
  const ValueId sum = to_.add("ScatterElements", {zeros, indices_, updates}, dtype_, flat,
                              {{"axis", std::int64_t{2}}, {"reduction", std::string("add")}});
  return to_.reshape(sum, shape_);
}

ValueId Sampler::place_grad(ValueId grad, std::size_t d) {
  if (!taps_[d].slope.valid()) return to_.filled(dtype_, {shape_[0], 1, places_}, 0);
  const ValueId product = to_.pointwise("Mul", {read(), to_.unsqueeze(grad, 2)});
  const ValueId along = to_.reduce("ReduceSum", product, {1});
  const ValueId weighted = to_.pointwise("Mul", {along, weights(d)});
  return to_.reduce("ReduceSum", weighted, {2}, false);
}

// The grid tells places from -1 to 1, the last dimension first.
Result<InputGrads> grid_sample_grad(const GradContext& context) {
  InputGrads grads(2);
  if (!context.grad().valid()) return grads;
  GraphBuilder& to = context.to;
  const Shape image = context.in_shape(0), grid = context.in_shape(1);
  Sampling how;
  how.mode = context.op.string_attribute("mode", "linear");
  if (how.mode == "bilinear") how.mode = "linear";
  if (how.mode == "bicubic") how.mode = "cubic";
  how.padding = context.op.string_attribute("padding_mode", "zeros");
  how.align_corners = context.op.int_attribute("align_corners", 0) != 0;
  const std::size_t dims = image.size() - 2;
  const std::int64_t n = image[0], places = element_count(grid) / n / grid.back();
  const DType dtype = widened(to.dtype(context.in(0)));
  const ValueId rows =
      to.reshape(to.cast(context.in(1), dtype), {n, places, static_cast<std::int64_t>(dims)});
  std::vector<ValueId> coordinates;
  std::vector<double> factors;
  for (std::size_t d = 0; d < dims; ++d) {
    const auto k = static_cast<std::int64_t>(dims - 1 - d);
    const ValueId told = to.reshape(to.slice(rows, 2, k, k + 1), {n, 1, places});
    const auto extent = static_cast<double>(image[d + 2]);
    factors.push_back((how.align_corners ? extent - 1 : extent) / 2);
    const ValueId middle = to.scalar(dtype, (extent - 1) / 2);
    coordinates.push_back(to.pointwise("Add", {to.scaled(told, factors[d]), middle}));
  }
  Sampler sampler(to, to.cast(context.in(0), dtype), coordinates, how);
  const ValueId g = to.reshape(to.cast(context.grad(), dtype), {n, image[1], places});
  if (context.wants(0)) grads[0] = to.cast(sampler.image_grad(g), to.dtype(context.in(0)));
  if (context.wants(1)) {
    std::vector<ValueId> parts;
    for (std::size_t d = dims; d-- > 0;) {
      const ValueId part = to.scaled(sampler.place_grad(g, d), factors[d]);
      parts.push_back(to.reshape(part, {n, places, 1}));
    }
    const ValueId grad = to.reshape(to.concat(parts, 2), grid);
    grads[1] = to.cast(grad, to.dtype(context.in(1)));
  }
  return grads;
}

}  // namespace autopar
