// Gradient of RoiAlign. Bins are averages of samples on a grid, and interpolation goes dimension by
// dimension: with a matrix per box and dimension of what every row of the image weighs in every
// bin,
//   y[r, c, p, q] = sum over h, w of  high[r, p, h] * wide[r, q, w] * x[batch[r], c, h, w]
#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

struct Manner {
  double scale, offset;
  std::int64_t ratio;
};

// One dimension of the boxes; shapes are [box, bin, sample, row of the image].
class Bins {
 public:
  Bins(GraphBuilder& to, ValueId boxes, std::int64_t first, std::int64_t bins, std::int64_t extent,
       const Manner& how)
      : to_(to), how_(how), bins_(bins), extent_(extent), dtype_(to.dtype(boxes)) {
    boxes_ = to.shape(boxes)[0];
    const ValueId begin = edge(boxes, first), end = edge(boxes, first + 2);
    ValueId size = sub(end, begin);
    if (how.offset == 0) {
      // Boxes are one row large at least; what is smaller does not grow with its edges.
      growing_ = cast(to.test("Greater", {size, number(1)}));
      size = to.pointwise("Max", {size, number(1)});
    }
    const ValueId bin = to.scaled(size, 1.0 / static_cast<double>(bins));
    // As many samples as cover a bin; of those, from the first that lies in the image on.
    samples_ = how.ratio > 0 ? how.ratio : 2 * extent + 3;
    count_ = how.ratio > 0 ? number(static_cast<double>(how.ratio)) : to.pointwise("Ceil", {bin});
    divisor_ = to.pointwise("Max", {count_, number(1)});
    const ValueId step = to.pointwise("Div", {bin, divisor_});
    const ValueId from = add(begin, mul(bin, numbers(bins, 1)));
    ValueId sample = numbers(samples_, 2);
    if (how.ratio <= 0) {
      const ValueId none = to.test("Equal", {step, number(0)});
      const ValueId safe = to.pointwise("Where", {none, number(1), step});
      const ValueId steps = to.pointwise("Div", {sub(number(-1), from), safe});
      const ValueId skipped = to.pointwise("Ceil", {sub(steps, number(0.5))});
      sample = add(sample, to.pointwise("Max", {skipped, number(0)}));
    }
    middle_ = add(sample, number(0.5));
    const ValueId place = add(from, mul(middle_, step));
    const double last = static_cast<double>(extent - 1);
    const ValueId within = to.pointwise("Clip", {place, number(0), number(last)});
    const ValueId before = cast(to.test("Less", {place, number(-1)}));
    const ValueId behind = cast(to.test("Greater", {place, number(last + 1)}));
    const ValueId counted = cast(to.test("Less", {sample, count_}));
    const ValueId outside = add(before, behind);
    share_ = to.pointwise("Div", {mul(counted, sub(number(1), outside)), divisor_});
    moves_ = cast(to.test("Equal", {place, within}));
    distance_ = sub(within, numbers(extent, 3));
  }

  // [box, bin, row]
  ValueId matrix() {
    const ValueId far = to_.pointwise("Abs", {distance_});
    const ValueId weight = to_.pointwise("Max", {sub(number(1), far), number(0)});
    return to_.reduce("ReduceSum", mul(weight, share_), {2}, false);
  }

  // [box, 1] each, from the gradient of the matrix: by the two edges.
  std::pair<ValueId, ValueId> edge_grads(ValueId grad) {
    const ValueId far = to_.pointwise("Abs", {distance_});
    const ValueId near = cast(to_.test("Less", {far, number(1)}));
    const ValueId slope = mul(to_.pointwise("Neg", {to_.pointwise("Sign", {distance_})}), near);
    const ValueId along = to_.reduce("ReduceSum", mul(slope, to_.unsqueeze(grad, 2)), {3});
    const ValueId place = mul(mul(along, share_), moves_);
    // place = begin + size * reach
    const ValueId within = to_.pointwise("Div", {middle_, divisor_});
    const ValueId bin = add(numbers(bins_, 1), within);
    const ValueId reach = to_.scaled(bin, 1.0 / static_cast<double>(bins_));
    const ValueId begin = to_.reduce("ReduceSum", place, {1, 2});
    ValueId size = to_.reduce("ReduceSum", mul(place, reach), {1, 2});
    if (growing_.valid()) size = mul(size, growing_);
    const auto column = [&](ValueId value) {
      return to_.reshape(to_.scaled(value, how_.scale), {boxes_, 1});
    };
    return {column(sub(begin, size)), column(size)};
  }

 private:
  ValueId add(ValueId a, ValueId b) { return to_.pointwise("Add", {a, b}); }
  ValueId sub(ValueId a, ValueId b) { return to_.pointwise("Sub", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return to_.pointwise("Mul", {a, b}); }
  ValueId cast(ValueId value) { return to_.cast(value, dtype_); }
  ValueId number(double n) { return to_.scalar(dtype_, n); }
  // 0, 1, 2, .. along one of four dimensions.
  ValueId numbers(std::int64_t count, std::size_t dim) {
    Tensor tensor{dtype_, Shape(4, 1), {}};
    tensor.shape[dim] = count;
    for (std::int64_t i = 0; i < count; ++i) {
      tensor.bytes += scalar_tensor(dtype_, static_cast<double>(i)).bytes;
    }
    return to_.constant(tensor);
  }
  ValueId edge(ValueId boxes, std::int64_t column) {
    const ValueId told = to_.reshape(to_.slice(boxes, 1, column, column + 1), {boxes_, 1, 1, 1});
    const ValueId scaled = to_.scaled(told, how_.scale);
    return how_.offset == 0 ? scaled : sub(scaled, number(how_.offset));
  }

  GraphBuilder& to_;
  Manner how_;
  std::int64_t bins_, extent_, boxes_ = 0, samples_ = 0;
  DType dtype_;
  ValueId growing_, count_, divisor_, middle_, share_, moves_, distance_;
};

}  // namespace

Result<InputGrads> roi_align_grad(const GradContext& context) {
  InputGrads grads(3);
  if (!context.grad().valid()) return grads;
  const Op& op = context.op;
  if (op.string_attribute("mode", "avg") != "avg") return no_gradient(context, "of mode 'max'");
  GraphBuilder& to = context.to;
  const Shape x = context.in_shape(0), y = context.out_shape(0);
  // Before opset 16 there was no such attribute, and no half pixel.
  const std::string mode = op.string_attribute("coordinate_transformation_mode",
                                               to.graph().opset >= 16 ? "half_pixel" : "");
  const Manner how = {op.float_attribute("spatial_scale", 1), mode == "half_pixel" ? 0.5 : 0.0,
                      op.int_attribute("sampling_ratio", 0)};
  const DType own_dtype = to.dtype(context.in(0)), dtype = widened(own_dtype);
  const ValueId boxes = to.cast(context.in(1), dtype), g = to.cast(context.grad(), dtype);
  Bins rows(to, boxes, 1, y[2], x[2], how), columns(to, boxes, 0, y[3], x[3], how);
  const ValueId high = rows.matrix(), wide = columns.matrix();
  const ValueId batch = to.cast(context.in(2), DType::kInt64);
  const ValueId by_rows = to.einsum("rcpq,rph->rchq", {g, high}, {y[0], y[1], x[2], y[3]});
  if (context.wants(0)) {
    const ValueId whole = to.einsum("rchq,rqw->rchw", {by_rows, wide}, {y[0], y[1], x[2], x[3]});
    std::vector<std::int64_t> numbers;
    for (std::int64_t n = 0; n < x[0]; ++n) numbers.push_back(n);
    const ValueId image = to.constant(int64_tensor({1, x[0]}, numbers));
    const ValueId own = to.cast(to.test("Equal", {to.unsqueeze(batch, 1), image}), dtype);
    grads[0] = to.cast(to.einsum("rn,rchw->nchw", {own, whole}, x), own_dtype);
  }
  if (!context.wants(1)) return grads;
  const Shape each = {y[0], x[1], x[2], x[3]};
  const ValueId image = to.add("Gather", {to.cast(context.in(0), dtype), batch}, dtype, each,
                               {{"axis", std::int64_t{0}}});
  const ValueId by_columns = to.einsum("rchw,rqw->rchq", {image, wide}, {y[0], y[1], x[2], y[3]});
  const ValueId by_high = to.einsum("rcpq,rchq->rph", {g, by_columns}, to.shape(high));
  const ValueId by_wide = to.einsum("rchq,rchw->rqw", {by_rows, image}, to.shape(wide));
  const auto [y1, y2] = rows.edge_grads(by_high);
  const auto [x1, x2] = columns.edge_grads(by_wide);
  grads[1] = to.cast(to.concat({x1, y1, x2, y2}, 1), own_dtype);
  return grads;
}

}  // namespace autopar
