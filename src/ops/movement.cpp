// Ops that only move or repeat elements.
#include <algorithm>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

RuleText transpose_rule(const OpView& view) {
  const std::vector<std::string> dims = dim_names(view.in(0).size());
  std::vector<std::string> output(dims.rbegin(), dims.rend());
  const std::vector<std::int64_t> perm = view.op.ints_attribute("perm");
  if (!perm.empty()) {
    if (perm.size() != dims.size()) return std::nullopt;
    for (std::size_t d = 0; d < perm.size(); ++d) {
      const auto from = normal_axis(perm[d], dims.size());
      if (!from) return std::nullopt;
      output[d] = dims[*from];
    }
  }
  return join(dims) + " -> " + join(output) + " | partial: 0";
}

// "_" in the input and output where `whole` holds.
std::string same_dims(std::size_t rank, const std::vector<bool>& whole, std::size_t operands,
                      std::size_t outputs = 1) {
  std::vector<std::string> dims = dim_names(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    if (whole[d]) dims[d] = "_";
  }
  const std::string text = join(dims);
  std::string result = text;
  for (std::size_t i = 0; i < operands; ++i) result += ", _";
  result += " -> " + text;
  for (std::size_t i = 1; i < outputs; ++i) result += ", " + text;
  return result;
}

// Dimensions that the slice takes as they are.
std::vector<bool> sliced_dims(const OpView& view) {
  const Shape& from = view.in(0);
  std::vector<bool> sliced(from.size(), true);
  const auto starts = constant_ints(view.graph, view.op, 1);
  auto axes = constant_ints(view.graph, view.op, 3);
  auto steps = constant_ints(view.graph, view.op, 4);
  if (!starts || (view.op.has_input(3) && !axes) || (view.op.has_input(4) && !steps)) return sliced;
  if (!axes) {
    axes.emplace();
    for (std::size_t i = 0; i < starts->size(); ++i) axes->push_back(static_cast<int>(i));
  }
  if (!steps) steps.emplace(starts->size(), 1);
  std::fill(sliced.begin(), sliced.end(), false);
  for (std::size_t i = 0; i < starts->size() && i < axes->size() && i < steps->size(); ++i) {
    const auto d = normal_axis((*axes)[i], from.size());
    if (!d) return std::vector<bool>(from.size(), true);
    const bool from_begin = (*starts)[i] == 0 || (*starts)[i] <= -from[*d];
    sliced[*d] = !from_begin || (*steps)[i] != 1 || view.out(0)[*d] != from[*d];
  }
  return sliced;
}

RuleText slice_rule(const OpView& view) {
  if (view.out(0).size() != view.in(0).size()) return std::nullopt;
  return same_dims(view.in(0).size(), sliced_dims(view), view.shapes.inputs.size() - 1) +
         " | partial: 0";
}

// Bounds of dimensions that are taken whole: "to the end", wherever that is on a rank.
void widen_bounds(const LocalContext& context, Op& op) {
  const auto starts = constant_ints(context.graph, context.op, 1);
  auto ends = constant_ints(context.graph, context.op, 2);
  const auto axes = constant_ints(context.graph, context.op, 3);
  const std::size_t rank = context.specs.inputs[0].dims.size();
  if (!starts || !ends) return;
  Emitter emitter(context);
  const Shape local = emitter.output_shape(0);
  bool changed = false;
  std::vector<std::int64_t> begins = *starts;
  for (std::size_t i = 0; i < std::min(starts->size(), ends->size()); ++i) {
    if (axes && i >= axes->size()) break;
    const auto d = normal_axis(axes ? (*axes)[i] : static_cast<std::int64_t>(i), rank);
    if (!d || context.specs.inputs[0].dims[*d].empty()) continue;
    begins[i] = 0;
    (*ends)[i] = local[*d];
    changed = true;
  }
  if (!changed) return;
  op.inputs[1] = emitter.ints(begins);
  op.inputs[2] = emitter.ints(*ends);
  // All index inputs have one type.
  for (std::size_t port : {std::size_t{3}, std::size_t{4}}) {
    const auto values = constant_ints(context.graph, context.op, port);
    if (values) op.inputs[port] = emitter.ints(*values);
  }
}

RuleText concat_rule(const OpView& view) {
  const std::size_t rank = view.out(0).size();
  const auto axis = view.axis("axis", 0, rank);
  if (!axis) return std::nullopt;
  std::vector<std::string> dims = dim_names(rank);
  dims[*axis] = "_";
  return join(dims) + "* -> " + join(dims) + " | partial: *";
}

RuleText split_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const auto axis = view.axis("axis", 0, rank);
  if (!axis) return std::nullopt;
  std::vector<bool> whole(rank, false);
  whole[*axis] = true;
  return same_dims(rank, whole, view.shapes.inputs.size() - 1, view.shapes.outputs.size()) +
         " | partial: 0";
}

// What the input has is handed on; new extents are factors of the output alone.
RuleText expand_rule(const OpView& view) {
  const std::size_t rank = view.out(0).size();
  const Shape& from = view.in(0);
  if (from.size() > rank) return std::nullopt;
  const std::vector<std::string> dims = dim_names(rank);
  std::vector<std::string> input;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t d = rank - from.size() + i;
    input.push_back(from[i] == view.out(0)[d] ? dims[d] : "_");
  }
  return join(input) + ", _ -> " + join(dims) + " | partial: 0";
}

// A repeated dimension is (r d): copies are major.
RuleText tile_rule(const OpView& view) {
  if (view.out(0).size() != view.in(0).size()) return std::nullopt;
  const std::vector<std::string> dims = dim_names(view.in(0).size());
  std::vector<std::string> output = dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (view.in(0)[d] == 0 || view.out(0)[d] % view.in(0)[d] != 0) return std::nullopt;
    const std::int64_t repeats = view.out(0)[d] / view.in(0)[d];
    if (repeats == 1) continue;
    output[d] = "(r" + std::to_string(d) + "=" + std::to_string(repeats) + " " + dims[d] + ")";
  }
  return join(dims) + ", _ -> " + join(output) + " | partial: 0";
}

void set_repeats(const LocalContext& context, Op& op) {
  Emitter emitter(context);
  std::vector<std::int64_t> repeats = emitter.output_shape(0);
  const Shape from = emitter.value(context.inputs[0]).shape;
  for (std::size_t d = 0; d < repeats.size(); ++d) repeats[d] /= std::max<std::int64_t>(from[d], 1);
  op.inputs[1] = emitter.ints(repeats);
}

// Padding of zeros is linear.
RuleText pad_rule(const OpView& view) {
  const Shape& from = view.in(0);
  std::vector<bool> padded(from.size());
  const auto pads = constant_ints(view.graph, view.op, 1);
  const auto axes = constant_ints(view.graph, view.op, 3);
  const bool known = pads && (axes || !view.op.has_input(3)) &&
                     pads->size() == 2 * (axes ? axes->size() : from.size());
  if (!known) std::fill(padded.begin(), padded.end(), true);
  for (std::size_t i = 0; known && i < pads->size() / 2; ++i) {
    const auto d = normal_axis(axes ? (*axes)[i] : static_cast<std::int64_t>(i), from.size());
    if (!d) return std::nullopt;
    padded[*d] = (*pads)[i] != 0 || (*pads)[i + pads->size() / 2] != 0;
  }
  std::string text = same_dims(from.size(), padded, view.shapes.inputs.size() - 1);
  const bool constant_mode = view.op.string_attribute("mode", "constant") == "constant";
  bool zero = !view.op.has_input(2);
  if (!zero) {
    const Tensor* value = view.graph.value(view.op.inputs[2]).tensor();
    zero = value != nullptr && value->bytes.find_first_not_of('\0') == std::string::npos;
  }
  if (!constant_mode || zero) text += " | partial: 0";
  return text;
}

// Dimensions that keep their extent and are not interpolated.
RuleText resize_rule(const OpView& view) {
  const Shape& from = view.in(0);
  if (view.out(0).size() != from.size()) return std::nullopt;
  const std::string mode = view.op.string_attribute("coordinate_transformation_mode", "half_pixel");
  std::vector<bool> resized(from.size());
  for (std::size_t d = 0; d < from.size(); ++d) {
    resized[d] = mode == "tf_crop_and_resize" || d >= 2 || from[d] != view.out(0)[d];
  }
  // What lies outside the image is a constant of its own.
  const bool extrapolates = mode == "tf_crop_and_resize";
  return same_dims(from.size(), resized, view.shapes.inputs.size() - 1) +
         (extrapolates ? "" : " | partial: 0");
}

// The target sizes, if given, name the split dimensions as well.
void set_sizes(const LocalContext& context, Op& op) {
  const auto sizes = constant_ints(context.graph, context.op, 3);
  if (!sizes) return;
  Emitter emitter(context);
  const Shape shape = emitter.output_shape(0);
  const std::vector<std::int64_t> axes = context.op.ints_attribute("axes");
  std::vector<std::int64_t> local = *sizes;
  for (std::size_t i = 0; i < local.size(); ++i) {
    if (!axes.empty() && i >= axes.size()) break;
    const auto d = normal_axis(axes.empty() ? static_cast<std::int64_t>(i) : axes[i], shape.size());
    if (d && !context.specs.outputs[0].dims[*d].empty()) local[i] = shape[*d];
  }
  op.inputs[3] = emitter.ints(local);
}

RuleText trilu_rule(const OpView& view) {
  return std::string("... _ _") + (view.shapes.inputs.size() > 1 ? ", " : "") +
         " -> ... _ _ | partial: 0";
}

RuleText reverse_sequence_rule(const OpView& view) {
  std::vector<std::string> dims = dim_names(view.in(0).size());
  const auto batch = view.axis("batch_axis", 1, dims.size());
  const auto time = view.axis("time_axis", 0, dims.size());
  if (!batch || !time) return std::nullopt;
  dims[*time] = "_";
  return join(dims) + ", " + dims[*batch] + " -> " + join(dims) + " | partial: 0";
}

Work slice_work(const Op& op, const OpShapes& shapes) { return gather_work(op, shapes); }

OpRow mover(const char* type, RuleFunction rule, GradFunction grad,
            std::initializer_list<int> operands, RewriteFunction rewrite = nullptr,
            WorkFunction work = nullptr) {
  return {.type = type,
          .rule = rule,
          .flops_per_element = 0,
          .work = work,
          .grad = grad,
          .operands = operand_bits(operands),
          .rewrite = rewrite,
          .exact_on_integers = true};
}

}  // namespace

std::span<const OpRow> movement_rows() {
  static const std::vector<OpRow> rows = {
      mover("Transpose", transpose_rule, transpose_grad, {}),
      mover("Slice", slice_rule, slice_grad, {1, 2, 3, 4}, widen_bounds, slice_work),
      mover("Concat", concat_rule, concat_grad, {}),
      mover("Split", split_rule, split_grad, {1}),
      mover("Expand", expand_rule, expand_grad, {1}, set_shape_input<1>),
      mover("Tile", tile_rule, tile_grad, {1}, set_repeats),
      mover("Pad", pad_rule, pad_grad, {1, 3}),
      mover("Trilu", trilu_rule, same_op_grad, {1}),
      mover("ReverseSequence", reverse_sequence_rule, same_op_grad, {}),
      {.type = "Resize",
       .rule = resize_rule,
       .flops_per_element = 8,
       .grad = resize_grad,
       .operands = operand_bits({1, 2, 3}),
       .rewrite = set_sizes},
  };
  return rows;
}

}  // namespace autopar
