// Gradients of writing by index: data keep theirs where nothing was written, and updates have that
// of the place that they were written to.
#include <numeric>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// Both kinds: the op that writes by these indices and the one that reads by them.
struct Writing {
  const GradContext& context;
  const char* reader;
  GraphBuilder& to = context.to;

  Attributes attributes(const char* reduction) const {
    Attributes attributes;
    const auto axis = context.op.attributes.find("axis");
    if (axis != context.op.attributes.end()) attributes["axis"] = axis->second;
    if (reduction != nullptr) attributes["reduction"] = std::string(reduction);
    return attributes;
  }
  // Counts of 16-bit floats are made in float32, as sums are.
  ValueId write(ValueId data, ValueId updates, const char* reduction) const {
    const DType dtype = to.dtype(data);
    const DType wide = reduction != nullptr && size_of(dtype) == 2 ? DType::kFloat32 : dtype;
    const ValueId written =
        to.add(context.op.type, {to.cast(data, wide), context.in(1), to.cast(updates, wide)}, wide,
               to.shape(data), attributes(reduction));
    return to.cast(written, dtype);
  }
  ValueId read(ValueId data) const {
    return to.add(reader, {data, context.in(1)}, to.dtype(data), context.in_shape(2),
                  attributes(nullptr));
  }
  ValueId zeros(std::size_t port) const {
    return to.filled(to.dtype(context.in(port)), context.in_shape(port), 0);
  }
  ValueId times(ValueId a, ValueId b) const { return to.pointwise("Mul", {a, b}); }
};

// Data and updates that are equally large share the gradient.
void extremum_grads(const Writing& writing, InputGrads& grads) {
  const GradContext& context = writing.context;
  GraphBuilder& to = writing.to;
  const ValueId y = context.out(0), g = context.grad();
  const auto hits = [&](ValueId value, ValueId extremum) {
    return to.cast(to.test("Equal", {value, extremum}), to.dtype(y));
  };
  const ValueId data_hits = hits(context.in(0), y);
  const ValueId update_hits = hits(context.in(2), writing.read(y));
  const ValueId share =
      to.pointwise("Div", {g, to.pointwise("Max", {writing.write(data_hits, update_hits, "add"),
                                                   to.scalar(to.dtype(y), 1)})});
  grads[0] = writing.times(share, data_hits);
  if (context.wants(2)) grads[2] = writing.times(writing.read(share), update_hits);
}

// The product of the others; also where one update, or more, is 0.
void product_grads(const Writing& writing, InputGrads& grads) {
  const GradContext& context = writing.context;
  GraphBuilder& to = writing.to;
  const ValueId g = context.grad(), updates = context.in(2);
  const DType dtype = to.dtype(g);
  if (context.wants(0)) grads[0] = writing.write(g, updates, "mul");
  if (!context.wants(2)) return;
  const ValueId zero = to.scalar(dtype, 0), one = to.scalar(dtype, 1);
  const ValueId is_zero = to.test("Equal", {updates, zero});
  const ValueId safe = to.pointwise("Where", {is_zero, one, updates});
  const ValueId product = writing.read(writing.times(g, writing.write(context.in(0), safe, "mul")));
  const ValueId zeros =
      writing.read(writing.write(writing.zeros(0), to.cast(is_zero, dtype), "add"));
  const ValueId others = to.pointwise(
      "Where", {to.test("Equal", {zeros, zero}), to.pointwise("Div", {product, safe}), zero});
  const ValueId rest = to.pointwise("Where", {to.test("Equal", {zeros, one}), product, zero});
  grads[2] = to.pointwise("Where", {is_zero, rest, others});
}

Result<InputGrads> scatter_grads(const GradContext& context, const char* reader) {
  InputGrads grads(3);
  if (!context.grad().valid()) return grads;
  const Writing writing{context, reader};
  const std::string reduction = context.op.string_attribute("reduction", "none");
  if (reduction == "max" || reduction == "min") {
    extremum_grads(writing, grads);
  } else if (reduction == "mul") {
    product_grads(writing, grads);
  } else {
    const bool adds = reduction == "add";
    if (context.wants(0)) {
      grads[0] = adds ? context.grad() : writing.write(context.grad(), writing.zeros(2), nullptr);
    }
    if (context.wants(2)) grads[2] = writing.read(context.grad());
  }
  return grads;
}

}  // namespace

Result<InputGrads> scatter_elements_grad(const GradContext& context) {
  return scatter_grads(context, "GatherElements");
}

Result<InputGrads> scatter_nd_grad(const GradContext& context) {
  return scatter_grads(context, "GatherND");
}

// The places along the axis, one per step of the update and sample, the same for all the rest.
Result<InputGrads> tensor_scatter_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  const ValueId g = context.grad();
  InputGrads grads(context.op.inputs.size());
  if (!g.valid()) return grads;
  const Shape cache = context.in_shape(0), update = context.in_shape(1);
  const std::size_t axis = context.axis("axis", -2, cache.size());
  std::vector<std::int64_t> steps(static_cast<std::size_t>(update[axis]));
  std::iota(steps.begin(), steps.end(), 0);
  Shape along(cache.size(), 1);
  along[axis] = update[axis];
  ValueId places = to.constant(int64_tensor(along, steps));
  if (context.in(2).valid()) {
    Shape samples(cache.size(), 1);
    samples[0] = cache[0];
    const ValueId first = to.cast(to.reshape(context.in(2), samples), DType::kInt64);
    places = to.pointwise("Add", {first, places});
  }
  if (context.op.string_attribute("mode", "linear") == "circular") {
    const ValueId extent = to.scalar(DType::kInt64, static_cast<double>(cache[axis]));
    places = to.pointwise("Mod", {places, extent});
  }
  places = to.broadcast_to(places, update);
  const Attributes attributes = {{"axis", static_cast<std::int64_t>(axis)}};
  const DType dtype = to.dtype(g);
  if (context.wants(0)) {
    grads[0] = to.add("ScatterElements", {g, places, to.filled(dtype, update, 0)}, dtype, cache,
                      attributes);
  }
  if (context.wants(1)) {
    grads[1] = to.add("GatherElements", {g, places}, dtype, update, attributes);
  }
  return grads;
}

}  // namespace autopar
