// Writing by index. Dimensions that are written to may be split: every rank writes what falls into
// its part. Where updates are added, they may be split as well: the results are partial sums.
#include <algorithm>
#include <utility>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/index.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

bool adds(const Op& op) { return op.string_attribute("reduction", "none") == "add"; }

bool is_linear(const Op& op) {
  return adds(op) || op.string_attribute("reduction", "none") == "none";
}

// Linear in data and updates together; sums over updates that are split have the data as a summand.
std::string linear_sections(const Op& op, const std::vector<std::string>& update_dims) {
  std::string text = is_linear(op) ? " | partial: 0 2" : "";
  if (!adds(op)) return text;
  for (const std::string& name : update_dims) text += " | summand " + name + ": 0";
  return text;
}

// Dimensions beside the axis are written at the same place, so they are one factor only where the
// indices cover all of them.
RuleText scatter_elements_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const auto axis = view.axis("axis", 0, rank);
  if (!axis || view.in(1).size() != rank) return std::nullopt;
  std::vector<std::string> data = dim_names(rank), updates = data;
  for (std::size_t d = 0; d < rank; ++d) {
    if (view.in(0)[d] != view.in(1)[d]) data[d] = updates[d] = "_";
  }
  data[*axis] = "v~";
  updates[*axis] = adds(view.op) ? "u+" : "_";
  const std::string text =
      join(data) + ", " + join(updates) + ", " + join(updates) + " -> " + join(data);
  return text + linear_sections(view.op, {"u"});
}

// data [v.. d..], indices [i.. (index)], updates [i.. d..] -> like data
RuleText scatter_nd_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const std::size_t index_rank = view.in(1).size();
  if (index_rank == 0) return std::nullopt;
  const std::size_t depth = static_cast<std::size_t>(view.in(1).back());
  if (depth > rank) return std::nullopt;
  std::vector<std::string> data = dim_names(rank);
  for (std::size_t d = 0; d < depth; ++d) data[d] = depth == 1 ? "v~" : "_";
  std::vector<std::string> indices = dim_names(index_rank - 1, "u");
  for (std::string& word : indices) word = adds(view.op) ? word + "+" : "_";
  std::vector<std::string> updates = indices;
  updates.insert(updates.end(), data.begin() + static_cast<std::ptrdiff_t>(depth), data.end());
  indices.push_back("_");
  const std::string text =
      join(data) + ", " + join(indices) + ", " + join(updates) + " -> " + join(data);
  return text + linear_sections(view.op, dim_names(index_rank - 1, "u"));
}

// Gives `data` one more row at the end of dimension `d`, for what other ranks write.
ValueId with_spare_row(Emitter& emitter, ValueId data, std::size_t d) {
  const Value whole = emitter.value(data);
  Shape row = whole.shape, longer = whole.shape;
  row[d] = 1;
  longer[d] += 1;
  const ValueId spare =
      emitter.add("Expand", {emitter.scalar(whole.dtype, 0), emitter.ints(row)}, whole.dtype, row);
  return emitter.add("Concat", {data, spare}, whole.dtype, longer,
                     {{"axis", static_cast<std::int64_t>(d)}});
}

// The op with the rank's own indices into dimension `d`; `mask` covers the updates, broadcast.
Result<std::vector<ValueId>> scatter_own(const LocalContext& context, Emitter& emitter,
                                         std::size_t d, const OwnIndices& own, Shape mask_shape) {
  const std::string& type = context.op.type;
  const ValueId data = emitter.input(0);
  if (adds(context.op)) {
    const ValueId zero = emitter.scalar(emitter.output_dtype(0), 0);
    const ValueId mask = emitter.reshape(own.mask, std::move(mask_shape));
    const ValueId updates = emitter.pointwise("Where", {mask, emitter.input(2), zero});
    return only_output(
        context, emitter.finish(0, type, {data, own.clamped, updates}, context.op.attributes));
  }
  const std::int64_t extent = emitter.value(data).shape[d];
  const ValueId spare = emitter.scalar(emitter.value(own.shifted).dtype, double(extent));
  const ValueId indices = emitter.pointwise("Where", {own.mask, own.shifted, spare});
  const ValueId longer = with_spare_row(emitter, data, d);
  const ValueId written =
      emitter.add(type, {longer, indices, emitter.input(2)}, emitter.output_dtype(0),
                  emitter.value(longer).shape, context.op.attributes);
  const ValueId axes = emitter.ints({static_cast<std::int64_t>(d)});
  return only_output(
      context,
      emitter.finish(0, "Slice", {written, emitter.ints({0}), emitter.ints({extent}), axes}));
}

Result<std::vector<ValueId>> scatter_plainly(const LocalContext& context, Emitter& emitter) {
  return only_output(context,
                     emitter.finish(0, context.op.type, context.inputs, context.op.attributes));
}

Result<std::vector<ValueId>> split_scatter_elements(const LocalContext& context) {
  Emitter emitter(context);
  const Shape data = emitter.value(emitter.input(0)).shape;
  const std::size_t axis = *normal_axis(context.op.int_attribute("axis", 0), data.size());
  const std::vector<int>& axes = emitter.axes_of_input(0, axis);
  if (axes.empty()) return scatter_plainly(context, emitter);
  const OwnIndices own = own_indices(emitter, emitter.input(1), axes, data[axis]);
  return scatter_own(context, emitter, axis, own, emitter.value(own.mask).shape);
}

Result<std::vector<ValueId>> split_scatter_nd(const LocalContext& context) {
  Emitter emitter(context);
  const Shape data = emitter.value(emitter.input(0)).shape;
  const std::vector<int>& axes = emitter.axes_of_input(0, 0);
  if (axes.empty()) return scatter_plainly(context, emitter);
  const OwnIndices own = own_indices(emitter, emitter.input(1), axes, data[0]);
  // The index's own dimension, of extent 1, is where the dimensions of a row begin.
  Shape mask_shape = emitter.value(own.mask).shape;
  mask_shape.pop_back();
  mask_shape.resize(mask_shape.size() + data.size() - 1, 1);
  return scatter_own(context, emitter, 0, own, mask_shape);
}

// The result is a copy of the data, and the updates are read and written.
Work scatter_work(const Op& op, const OpShapes& shapes) {
  Work work;
  const std::size_t updates = op.type == "TensorScatter" ? 1 : 2, indices = 3 - updates;
  if (shapes.inputs.size() <= updates) return work;
  const auto bytes = [&](std::size_t i) {
    return op.has_input(i) ? bytes_of(shapes.inputs[i], shapes.input_dtypes[i]) : 0;
  };
  work.bytes = 2 * bytes(0) + bytes(indices) + 3 * bytes(updates);
  work.flops = elements_of(shapes.inputs, updates);
  return work;
}

// cache [b .. s ..], update like it but for s, write_indices [b]
RuleText tensor_scatter_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const auto axis = view.axis("axis", -2, rank);
  if (!axis || rank < 2) return std::nullopt;
  std::vector<std::string> dims = dim_names(rank);
  const std::string batch = *axis == 0 ? "_" : dims[0];
  dims[*axis] = "_";
  return join(dims) + ", " + join(dims) + ", " + batch + " -> " + join(dims);
}

}  // namespace

std::span<const OpRow> scatter_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "ScatterElements",
       .rule = scatter_elements_rule,
       .work = scatter_work,
       .grad = scatter_elements_grad,
       .split = split_scatter_elements,
       .exact_on_integers = true},
      {.type = "ScatterND",
       .rule = scatter_nd_rule,
       .work = scatter_work,
       .grad = scatter_nd_grad,
       .split = split_scatter_nd,
       .exact_on_integers = true},
      {.type = "TensorScatter",
       .rule = tensor_scatter_rule,
       .work = scatter_work,
       .grad = tensor_scatter_grad},
  };
  return rows;
}

}  // namespace autopar
