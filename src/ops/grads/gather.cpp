// Gradients of reading by index: what was read is added where it was read.
#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// Indices into several dimensions as one index into them joined, [.., 1].
ValueId joined_indices(GraphBuilder& to, ValueId indices, Shape extents) {
  const std::size_t last = to.rank(indices) - 1;
  ValueId sum;
  std::int64_t stride = element_count(extents);
  for (std::size_t k = 0; k < extents.size(); ++k) {
    stride /= extents[k];
    const auto at = static_cast<std::int64_t>(k);
    const ValueId index = to.slice(indices, last, at, at + 1);
    // Negative ones count from the end of their dimension.
    const ValueId extent = to.scalar(DType::kInt64, static_cast<double>(extents[k]));
    const ValueId negative = to.test("Less", {index, to.scalar(DType::kInt64, 0)});
    const ValueId counted =
        to.pointwise("Where", {negative, to.pointwise("Add", {index, extent}), index});
    const ValueId part = to.scaled(counted, static_cast<double>(stride));
    sum = sum.valid() ? to.pointwise("Add", {sum, part}) : part;
  }
  return sum;
}

}  // namespace

ValueId scattered_sum(GraphBuilder& to, const std::string& type, Shape shape, ValueId indices,
                      ValueId updates, Attributes attributes) {
  const DType dtype = to.dtype(updates);
  const DType wide = size_of(dtype) == 2 ? DType::kFloat32 : dtype;
  attributes["reduction"] = std::string("add");
  const ValueId sum = to.add(type, {to.filled(wide, shape, 0), indices, to.cast(updates, wide)},
                             wide, shape, std::move(attributes));
  return to.cast(sum, dtype);
}

Result<InputGrads> gather_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid() || !context.wants(0)) return InputGrads(2);
  const Shape data = context.in_shape(0);
  const Shape indices = context.in_shape(1);
  const std::size_t axis = context.axis("axis", 0, data.size());
  // The dimensions of the indices first, then those of the data without the axis.
  std::vector<std::size_t> forth, back;
  for (std::size_t i = 0; i < indices.size(); ++i) forth.push_back(axis + i);
  for (std::size_t d = 0; d < data.size() - 1; ++d) {
    forth.push_back(d < axis ? d : d + indices.size());
  }
  Shape table;
  table.push_back(data[axis]);
  for (std::size_t d = 0; d < data.size(); ++d) {
    if (d != axis) table.push_back(data[d]);
  }
  for (std::size_t d = 0; d < data.size(); ++d)
    back.push_back(d == axis ? 0 : d < axis ? d + 1 : d);
  const ValueId rows = to.transpose(context.grad(), forth);
  const ValueId places = to.unsqueeze(to.cast(context.in(1), DType::kInt64), indices.size());
  const ValueId sum = scattered_sum(to, "ScatterND", table, places, rows);
  return only_input(context, 0, to.transpose(sum, back));
}

Result<InputGrads> gather_elements_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid() || !context.wants(0)) return InputGrads(2);
  const Shape data = context.in_shape(0);
  const std::size_t axis = context.axis("axis", 0, data.size());
  return only_input(context, 0,
                    scattered_sum(to, "ScatterElements", data, context.in(1), context.grad(),
                                  {{"axis", static_cast<std::int64_t>(axis)}}));
}

// ScatterND knows no batches. There the indices are those of one dimension, the same for what lies
// behind it, so that batches can still be split.
Result<InputGrads> gather_nd_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid() || !context.wants(0)) return InputGrads(2);
  const Shape data = context.in_shape(0), indices = context.in_shape(1);
  const auto batch = static_cast<std::ptrdiff_t>(context.op.int_attribute("batch_dims", 0));
  if (batch == 0) {
    return only_input(context, 0,
                      scattered_sum(to, "ScatterND", data, context.in(1), context.grad()));
  }
  const auto depth = static_cast<std::ptrdiff_t>(indices.back());
  const Shape batches(data.begin(), data.begin() + batch);
  const Shape looked_up(data.begin() + batch, data.begin() + batch + depth);
  const Shape rest(data.begin() + batch + depth, data.end());
  const auto with = [&](std::int64_t extent, const Shape& behind) {
    Shape shape = batches;
    shape.push_back(extent);
    shape.insert(shape.end(), behind.begin(), behind.end());
    return shape;
  };
  const std::int64_t places = element_count(Shape(indices.begin() + batch, indices.end() - 1));
  const Shape table = with(element_count(looked_up), rest), read = with(places, rest);
  const ValueId one = joined_indices(to, context.in(1), looked_up);
  const ValueId index = to.broadcast_to(to.reshape(one, with(places, Shape(rest.size(), 1))), read);
  const ValueId sum =
      scattered_sum(to, "ScatterElements", table, index, to.reshape(context.grad(), read),
                    {{"axis", static_cast<std::int64_t>(batch)}});
  return only_input(context, 0, to.reshape(sum, data));
}

// Indices are into all dimensions joined.
Result<InputGrads> max_unpool_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(context.op.inputs.size());
  const ValueId flat = to.reshape(context.grad(), {element_count(context.out_shape(0))});
  return only_input(context, 0,
                    to.add("Gather", {flat, context.in(1)}, to.dtype(flat), context.in_shape(0)));
}

// Values come from where the indices say.
Result<InputGrads> top_k_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  if (!context.grad().valid()) return InputGrads(2);
  const Shape whole = context.in_shape(0);
  const std::size_t axis = context.axis("axis", -1, whole.size());
  const DType dtype = to.dtype(context.grad());
  const ValueId indices = context.output(1, DType::kInt64, context.out_shape(0));
  return only_input(context, 0,
                    to.add("ScatterElements", {to.filled(dtype, whole, 0), indices, context.grad()},
                           dtype, whole, {{"axis", static_cast<std::int64_t>(axis)}}));
}

// Only the two values are numbers.
Result<InputGrads> one_hot_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  InputGrads grads(3);
  const ValueId g = context.grad();
  if (!g.valid() || !context.wants(2)) return grads;
  const DType dtype = to.dtype(g);
  std::vector<ValueId> inputs = context.op.inputs;
  const ValueId zero = to.scalar(dtype, 0), one = to.scalar(dtype, 1);
  inputs[2] = to.concat({to.reshape(zero, {1}), to.reshape(one, {1})}, 0);
  const ValueId hot = to.add("OneHot", inputs, dtype, context.out_shape(0), context.op.attributes);
  std::vector<std::size_t> all;
  for (std::size_t d = 0; d < to.rank(g); ++d) all.push_back(d);
  const auto sum = [&](ValueId value) {
    return to.reshape(to.reduce("ReduceSum", value, all, false), {1});
  };
  const ValueId on = sum(to.pointwise("Mul", {g, hot}));
  grads[2] = to.concat({to.pointwise("Sub", {sum(g), on}), on}, 0);
  return grads;
}

}  // namespace autopar
