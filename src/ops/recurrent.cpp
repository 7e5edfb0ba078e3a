// Recurrent layers and other ops of which only the batch, or what is beside the computed
// dimensions, can be split.
#include <vector>

#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// X [time, batch, input], W, R, B, lengths [batch], initial states [directions, batch, hidden],
// peepholes -> Y [time, directions, batch, hidden], last states. Layout 1 puts the batch first.
RuleText recurrent_rule(const OpView& view) {
  if (view.op.int_attribute("layout", 0) == 0) {
    return "_ b _, _ _ _, _ _ _, _ _, b, _ b _, _ b _, _ _ -> _ _ b _, _ b _, _ b _";
  }
  return "b _ _, _ _ _, _ _ _, _ _, b, b _ _, b _ _, _ _ -> b _ _ _, b _ _, b _ _";
}

Work recurrent_work(const Op& op, const OpShapes& shapes) {
  Work work = streaming_work(op, shapes);
  if (shapes.inputs.size() < 3 || shapes.inputs[0].size() != 3) return work;
  const double steps = double(shapes.inputs[0][0]) * double(shapes.inputs[0][1]);
  work.flops =
      2 * steps *
      static_cast<double>(element_count(shapes.inputs[1]) + element_count(shapes.inputs[2]));
  return work;
}

// The signal dimension stays whole, and so does the last one (real and imaginary parts).
RuleText fourier_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  if (rank < 2) return std::nullopt;
  std::int64_t axis = view.op.int_attribute("axis", view.graph.opset >= 20 ? -2 : 1);
  if (view.op.has_input(2)) {
    const auto given = constant_ints(view.graph, view.op, 2);
    if (!given || given->size() != 1) return std::nullopt;
    axis = given->front();
  }
  const auto d = normal_axis(axis, rank);
  if (!d) return std::nullopt;
  std::vector<std::string> dims = dim_names(rank);
  dims[*d] = dims.back() = "_";
  return join(dims) + ", , -> " + join(dims);
}

// signal [b, length, 1], step, window, frame length -> [b, frames, bins, 2]
RuleText short_fourier_rule(const OpView& view) {
  if (view.in(0).empty()) return std::nullopt;
  return "b " + whole_dims(view.in(0).size() - 1) + ", , _, -> b _ _ _";
}

// [n, c * kernel, places] -> [n, c, image..]
RuleText column_to_image_rule(const OpView& view) {
  if (view.in(0).size() != 3 || view.out(0).size() < 3) return std::nullopt;
  const std::string c = "c=" + std::to_string(view.out(0)[1]);
  return "n (" + c + " k^) _, _, _ -> n c " + whole_dims(view.out(0).size() - 2) + " | partial: 0";
}

// Dimensions that are cut or padded are whole; so are those that the shape names.
RuleText center_crop_rule(const OpView& view) {
  std::vector<std::string> dims = dim_names(view.in(0).size());
  const std::vector<std::int64_t> axes = view.op.ints_attribute("axes");
  for (std::size_t d = 0; d < dims.size() && axes.empty(); ++d) dims[d] = "_";
  for (std::int64_t axis : axes) {
    const auto d = normal_axis(axis, dims.size());
    if (!d) return std::nullopt;
    dims[*d] = "_";
  }
  return join(dims) + ", _ -> " + join(dims) + " | partial: 0";
}

// X, W, offsets, bias, mask: every image by itself.
RuleText deformable_rule(const OpView& view) {
  const auto image = [&](const Shape& shape) {
    return shape.empty() ? std::string() : "n " + whole_dims(shape.size() - 1);
  };
  return image(view.in(0)) + ", " + whole_dims(view.in(1).size()) + ", " + image(view.in(2)) +
         ", " + whole_dims(view.in(3).size()) + ", " + image(view.in(4)) + " -> " +
         image(view.out(0));
}

}  // namespace

std::span<const OpRow> recurrent_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "LSTM", .rule = recurrent_rule, .work = recurrent_work, .grad = lstm_grad},
      {.type = "GRU", .rule = recurrent_rule, .work = recurrent_work, .grad = gru_grad},
      {.type = "RNN", .rule = recurrent_rule, .work = recurrent_work, .grad = rnn_grad},
      {.type = "DFT",
       .rule = fourier_rule,
       .flops_per_element = 50,
       .grad = fourier_grad,
       .operands = operand_bits({1, 2})},
      {.type = "STFT",
       .rule = short_fourier_rule,
       .flops_per_element = 50,
       .grad = short_fourier_grad,
       .operands = operand_bits({1, 3})},
      {.type = "Col2Im",
       .rule = column_to_image_rule,
       .grad = column_to_image_grad,
       .operands = operand_bits({1, 2})},
      {.type = "CenterCropPad",
       .rule = center_crop_rule,
       .flops_per_element = 0,
       .grad = center_crop_pad_grad,
       .operands = operand_bits({1})},
      {.type = "DeformConv",
       .rule = deformable_rule,
       .flops_per_element = 100,
       .grad = deformable_grad},
      {.type = "Det", .text = "... _ _ -> ...", .flops_per_element = 100, .grad = determinant_grad},
  };
  return rows;
}

}  // namespace autopar
