// Recurrent layers and other ops of which only the batch, or what is beside the computed
// dimensions, can be split.
#include <vector>

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

}  // namespace

std::span<const OpRow> recurrent_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "LSTM", .rule = recurrent_rule, .work = recurrent_work},
      {.type = "GRU", .rule = recurrent_rule, .work = recurrent_work},
      {.type = "RNN", .rule = recurrent_rule, .work = recurrent_work},
      {.type = "DFT",
       .rule = fourier_rule,
       .flops_per_element = 50,
       .operands = operand_bits({1, 2})},
      {.type = "Det", .text = "... _ _ -> ...", .flops_per_element = 100},
  };
  return rows;
}

}  // namespace autopar
