// Reading by index. A dimension that is looked up may be split: every rank looks up what it has and
// gives zeros for the rest, so the results add up.
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/index.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

bool is_constant(const OpView& view, std::size_t port) {
  return view.op.has_input(port) &&
         view.graph.value(view.op.inputs[port]).kind == ValueKind::kConstant;
}

RuleText gather_rule(const OpView& view) {
  std::vector<std::string> data = dim_names(view.in(0).size());
  const std::vector<std::string> indices = dim_names(view.in(1).size(), "i");
  const auto axis = view.axis("axis", 0, data.size());
  if (!axis) return std::nullopt;
  std::vector<std::string> output = data;
  const auto at = output.begin() + static_cast<std::ptrdiff_t>(*axis);
  output.insert(output.erase(at), indices.begin(), indices.end());
  // Known places are taken by slicing; nothing is looked up.
  data[*axis] = is_constant(view, 1) ? "_" : "v+";
  return join(data) + ", " + join(indices) + " -> " + join(output) + " | partial: 0";
}

// A row that another rank has is looked up somewhere and then replaced by zeros.
Result<std::vector<ValueId>> split_gather(const LocalContext& context) {
  Emitter emitter(context);
  const Shape data = emitter.value(emitter.input(0)).shape;
  const std::size_t axis = *normal_axis(context.op.int_attribute("axis", 0), data.size());
  const OwnIndices own =
      own_indices(emitter, emitter.input(1), emitter.axes_of_input(0, axis), data[axis]);
  const ValueId rows =
      emitter.add("Gather", {emitter.input(0), own.clamped}, emitter.output_dtype(0),
                  emitter.output_shape(0), {{"axis", static_cast<std::int64_t>(axis)}});
  Shape mask_shape = emitter.value(own.mask).shape;
  mask_shape.resize(mask_shape.size() + data.size() - axis - 1, 1);
  const ValueId mask = emitter.reshape(own.mask, mask_shape);
  const ValueId zero = emitter.scalar(emitter.output_dtype(0), 0);
  return only_output(context, emitter.finish(0, "Where", {mask, rows, zero}));
}

// Dimensions beside the axis are read at the same place, so they are one factor only where the
// indices cover all of them.
RuleText gather_elements_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const auto axis = view.axis("axis", 0, rank);
  if (!axis || view.in(1).size() != rank) return std::nullopt;
  std::vector<std::string> data = dim_names(rank), indices = data;
  for (std::size_t d = 0; d < rank; ++d) {
    if (view.in(0)[d] != view.in(1)[d]) data[d] = indices[d] = "_";
  }
  data[*axis] = is_constant(view, 1) ? "_" : "v+";
  indices[*axis] = "i";
  return join(data) + ", " + join(indices) + " -> " + join(indices) + " | partial: 0";
}

Result<std::vector<ValueId>> split_gather_elements(const LocalContext& context) {
  Emitter emitter(context);
  const Shape data = emitter.value(emitter.input(0)).shape;
  const std::size_t axis = *normal_axis(context.op.int_attribute("axis", 0), data.size());
  const OwnIndices own =
      own_indices(emitter, emitter.input(1), emitter.axes_of_input(0, axis), data[axis]);
  const ValueId found =
      emitter.add("GatherElements", {emitter.input(0), own.clamped}, emitter.output_dtype(0),
                  emitter.output_shape(0), {{"axis", static_cast<std::int64_t>(axis)}});
  const ValueId zero = emitter.scalar(emitter.output_dtype(0), 0);
  return only_output(context, emitter.finish(0, "Where", {own.mask, found, zero}));
}

// data [b.. v.. d..], indices [b.. i.. (index)] -> [b.. i.. d..]
RuleText gather_nd_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const std::size_t index_rank = view.in(1).size();
  const std::int64_t batch_dims = view.op.int_attribute("batch_dims", 0);
  if (index_rank == 0 || batch_dims < 0) return std::nullopt;
  const std::size_t batch = static_cast<std::size_t>(batch_dims);
  const std::size_t depth = static_cast<std::size_t>(view.in(1).back());
  if (batch >= index_rank || batch + depth > rank) return std::nullopt;
  std::vector<std::string> data = dim_names(rank), indices = dim_names(index_rank, "i"), output;
  for (std::size_t d = 0; d < batch; ++d) indices[d] = data[d];
  output.assign(indices.begin(), indices.end() - 1);
  indices.back() = "_";
  for (std::size_t d = batch; d < batch + depth; ++d) {
    data[d] = depth == 1 && !is_constant(view, 1) ? "v+" : "_";
  }
  for (std::size_t d = batch + depth; d < rank; ++d) output.push_back(data[d]);
  return join(data) + ", " + join(indices) + " -> " + join(output) + " | partial: 0";
}

Result<std::vector<ValueId>> split_gather_nd(const LocalContext& context) {
  Emitter emitter(context);
  const std::int64_t batch = context.op.int_attribute("batch_dims", 0);
  const std::size_t looked_up = static_cast<std::size_t>(batch);
  const Shape data = emitter.value(emitter.input(0)).shape;
  const OwnIndices own =
      own_indices(emitter, emitter.input(1), emitter.axes_of_input(0, looked_up), data[looked_up]);
  const ValueId rows =
      emitter.add("GatherND", {emitter.input(0), own.clamped}, emitter.output_dtype(0),
                  emitter.output_shape(0), {{"batch_dims", batch}});
  // The index's own dimension, of extent 1, is where the dimensions after it begin.
  Shape mask_shape = emitter.value(own.mask).shape;
  mask_shape.pop_back();
  mask_shape.resize(mask_shape.size() + data.size() - looked_up - 1, 1);
  const ValueId mask = emitter.reshape(own.mask, mask_shape);
  const ValueId zero = emitter.scalar(emitter.output_dtype(0), 0);
  return only_output(context, emitter.finish(0, "Where", {mask, rows, zero}));
}

}  // namespace

OwnIndices own_indices(Emitter& emitter, ValueId indices, const std::vector<int>& axes,
                       std::int64_t local_extent) {
  const DType dtype = emitter.value(indices).dtype;
  const std::int64_t extent = local_extent * emitter.parts(axes);
  const ValueId zero = emitter.scalar(dtype, 0);
  // Negative indices count from the end of the whole dimension.
  const ValueId wrapped =
      emitter.pointwise("Add", {indices, emitter.scalar(dtype, double(extent))});
  const ValueId negative = emitter.test("Less", {indices, zero});
  const ValueId counted = emitter.pointwise("Where", {negative, wrapped, indices});
  ValueId offset = emitter.offset(axes, local_extent, dtype);
  if (emitter.value(indices).shape.empty()) offset = emitter.reshape(offset, {});
  OwnIndices own;
  own.shifted = emitter.pointwise("Sub", {counted, offset});
  const ValueId below = emitter.test("Less", {own.shifted, zero});
  const ValueId inside =
      emitter.test("Less", {own.shifted, emitter.scalar(dtype, double(local_extent))});
  own.mask = emitter.test("And", {emitter.test("Not", {below}), inside});
  own.clamped = emitter.pointwise("Where", {own.mask, own.shifted, zero});
  return own;
}

std::span<const OpRow> gather_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "Gather",
       .rule = gather_rule,
       .work = gather_work,
       .grad = gather_grad,
       .split = split_gather,
       .exact_on_integers = true},
      {.type = "GatherElements",
       .rule = gather_elements_rule,
       .work = gather_work,
       .grad = gather_elements_grad,
       .split = split_gather_elements,
       .exact_on_integers = true},
      {.type = "GatherND",
       .rule = gather_nd_rule,
       .work = gather_work,
       .grad = gather_nd_grad,
       .split = split_gather_nd,
       .exact_on_integers = true},
  };
  return rows;
}

}  // namespace autopar
