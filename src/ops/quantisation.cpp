// Quantised numbers: conversions and the products that ONNX defines on them.
#include <algorithm>
#include <vector>

#include "ops/table.hpp"
#include "ops/window.hpp"

namespace autopar {
namespace {

// The scale and the zero point belong to the whole tensor, to slices of one axis, or to blocks.
RuleText quantize_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  const Shape& scale = view.in(1);
  const std::string data = join(dim_names(rank));
  if (element_count(scale) == 1) {
    const std::string whole(scale.empty() ? "" : "_");
    return data + ", " + whole + ", " + whole + " -> " + data;
  }
  const auto axis = view.axis("axis", 1, rank);
  if (!axis) return std::nullopt;
  if (scale.size() == 1 && scale[0] == view.in(0)[*axis]) {
    const std::string along = dim_names(rank)[*axis];
    return data + ", " + along + ", " + along + " -> " + data;
  }
  if (scale.size() != rank) return std::nullopt;
  std::vector<std::string> dims = dim_names(rank);
  dims[*axis] = "_";
  const std::string blocked = join(dims);
  return blocked + ", " + blocked + ", " + blocked + " -> " + blocked;
}

// Of the smallest and largest element of the whole tensor.
RuleText dynamic_quantize_rule(const OpView& view) {
  const std::string dims = whole_dims(view.in(0).size());
  return dims + " -> " + dims + ", , ";
}

// A scale or zero point: one number, or one per element of the dimension called `name`.
std::string parameter(const Shape& shape, std::int64_t extent, const std::string& name) {
  if (shape.empty()) return "";
  return shape == Shape{extent} && extent > 1 ? name : whole_dims(shape.size());
}

// Zero points per row or column stay whole; sums of products of integers are exact.
RuleText matmul_integer_rule(const OpView& view) {
  if (view.in(0).size() < 2 || view.in(1).size() < 2) return std::nullopt;
  const std::string zeros =
      parameter(view.in(2), 0, "") + ", " + parameter(view.in(3), view.in(1).back(), "n");
  const bool one = element_count(view.in(2)) == 1;
  return (one ? "... m k+, ... k+ n, " : "... _ k+, ... k+ n, ") + zeros +
         (one ? " -> ... m n" : " -> ... _ n");
}

// a, its scale and zero point, b, ..., y's: rounding after the sum keeps k whole.
RuleText quantised_matmul_rule(const OpView& view) {
  if (view.in(0).size() < 2 || view.in(3).size() < 2) return std::nullopt;
  for (std::size_t port : {1, 2, 4, 5, 6, 7}) {
    if (element_count(view.in(port)) != 1) return std::nullopt;
  }
  const auto one = [&](std::size_t port) { return parameter(view.in(port), 0, "") + ", "; };
  return "... m _, " + one(1) + one(2) + "... _ n, " + one(4) + one(5) + one(6) +
         parameter(view.in(7), 0, "") + " -> ... m n";
}

// The kernel is input `port`; what one output channel needs of the image is whole.
RuleText integer_conv_rule(const OpView& view) {
  if (view.op.int_attribute("group", 1) != 1 || view.in(0).size() < 3 || view.in(1).empty()) {
    return std::nullopt;
  }
  return "n _" + whole_from(2, view.in(0)) + ", m _" + whole_from(2, view.in(1)) + ", " +
         parameter(view.in(2), 0, "") + ", " + parameter(view.in(3), view.in(1)[0], "m") +
         " -> n m" + whole_from(2, view.out(0));
}

RuleText quantised_conv_rule(const OpView& view) {
  if (view.op.int_attribute("group", 1) != 1 || view.in(3).size() < 3) return std::nullopt;
  const std::int64_t channels = view.in(3)[0];
  const auto per_channel = [&](std::size_t port) {
    return parameter(view.in(port), channels, "m") + ", ";
  };
  const auto one = [&](std::size_t port) { return parameter(view.in(port), 0, "") + ", "; };
  return "n _" + whole_from(2, view.in(0)) + ", " + one(1) + one(2) + "m _" +
         whole_from(2, view.in(3)) + ", " + per_channel(4) + per_channel(5) + one(6) + one(7) +
         "m -> n m" + whole_from(2, view.out(0));
}

}  // namespace

std::span<const OpRow> quantisation_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "QuantizeLinear", .rule = quantize_rule, .flops_per_element = 4},
      {.type = "DequantizeLinear", .rule = quantize_rule, .flops_per_element = 2},
      {.type = "DynamicQuantizeLinear", .rule = dynamic_quantize_rule, .flops_per_element = 6},
      {.type = "MatMulInteger", .rule = matmul_integer_rule, .work = matmul_work},
      {.type = "QLinearMatMul", .rule = quantised_matmul_rule, .work = matmul_work},
      {.type = "ConvInteger", .rule = integer_conv_rule, .work = conv_work<1>},
      {.type = "QLinearConv", .rule = quantised_conv_rule, .work = conv_work<3>},
  };
  return rows;
}

}  // namespace autopar
