// Ops that compute each element from the elements at the same place, with broadcasting.
#include <vector>

#include "ops/table.hpp"

namespace autopar {
namespace {

constexpr const char* kUnary = "... -> ...";
constexpr const char* kBinary = "..., ... -> ...";
constexpr const char* kVariadic = "...* -> ...";

OpRow unary(const char* type, double flops) {
  return {.type = type, .text = kUnary, .flops_per_element = flops};
}

OpRow binary(const char* type, double flops = 1) {
  return {.type = type, .text = kBinary, .flops_per_element = flops};
}

// Only without randomness, where it hands its input on.
RuleText dropout_rule(const OpView& view) {
  const auto training = constant_ints(view.graph, view.op, 2);
  const bool random = view.op.has_input(2) && (!training || training->empty() || training->at(0));
  const std::size_t rank = view.in(0).size();
  const std::string dims = random ? whole_dims(rank) : join(dim_names(rank));
  // The mask is no sum.
  const char* sections = random || view.op.has_output(1) ? "" : " | partial: 0";
  return dims + ", , -> " + dims + ", " + dims + sections;
}

// The second input only tells the type.
RuleText cast_like_rule(const OpView& view) {
  return "..., " + whole_dims(view.in(1).size()) + " -> ... | partial: 0";
}

}  // namespace

std::span<const OpRow> elementwise_rows() {
  static const std::vector<OpRow> rows = {
      unary("Abs", 1),
      unary("Acos", 10),
      unary("Acosh", 10),
      unary("Asin", 10),
      unary("Asinh", 10),
      unary("Atan", 10),
      unary("Atanh", 10),
      unary("BitCast", 0),
      unary("BitwiseNot", 1),
      unary("Ceil", 1),
      unary("Celu", 8),
      unary("Cos", 10),
      unary("Cosh", 10),
      unary("Elu", 8),
      unary("Erf", 10),
      unary("Exp", 8),
      unary("Floor", 1),
      unary("Gelu", 12),
      unary("HardSigmoid", 3),
      unary("HardSwish", 4),
      unary("IsInf", 1),
      unary("IsNaN", 1),
      unary("LeakyRelu", 2),
      unary("Log", 8),
      unary("Mish", 16),
      unary("Not", 1),
      unary("Reciprocal", 4),
      unary("Relu", 1),
      unary("Round", 1),
      unary("Selu", 8),
      unary("Shrink", 2),
      unary("Sigmoid", 8),
      unary("Sign", 1),
      unary("Sin", 10),
      unary("Sinh", 10),
      unary("Softplus", 10),
      unary("Softsign", 4),
      unary("Sqrt", 4),
      unary("Swish", 9),
      unary("Tan", 10),
      unary("Tanh", 10),
      unary("ThresholdedRelu", 1),
      binary("And"),
      binary("BitShift"),
      binary("BitwiseAnd"),
      binary("BitwiseOr"),
      binary("BitwiseXor"),
      binary("Equal"),
      binary("Greater"),
      binary("GreaterOrEqual"),
      binary("Less"),
      binary("LessOrEqual"),
      binary("Mod", 4),
      binary("Or"),
      binary("PRelu", 2),
      binary("Pow", 16),
      binary("Xor"),
      {.type = "Max", .text = kVariadic},
      {.type = "Min", .text = kVariadic},
      {.type = "Clip", .text = "..., ..., ... -> ...", .flops_per_element = 2},
      // Linear in one operand or in several together.
      {.type = "Add", .text = "..., ... -> ... | partial: 0 1", .exact_on_integers = true},
      {.type = "Sub", .text = "..., ... -> ... | partial: 0 1", .exact_on_integers = true},
      {.type = "Mul", .text = "..., ... -> ... | partial: 0, 1", .exact_on_integers = true},
      {.type = "Div", .text = "..., ... -> ... | partial: 0", .flops_per_element = 4},
      {.type = "Sum", .text = "...* -> ... | partial: *", .exact_on_integers = true},
      {.type = "Mean", .text = "...* -> ... | partial: *"},
      {.type = "Neg", .text = "... -> ... | partial: 0", .exact_on_integers = true},
      {.type = "Where", .text = "..., ..., ... -> ... | partial: 1 2", .exact_on_integers = true},
      {.type = "Cast", .text = "... -> ... | partial: 0"},
      {.type = "CastLike", .rule = cast_like_rule, .operands = operand_bits({1})},
      {.type = "Dropout",
       .rule = dropout_rule,
       .operands = operand_bits({1, 2}),
       .rewrite = set_common_seed},
  };
  return rows;
}

}  // namespace autopar
