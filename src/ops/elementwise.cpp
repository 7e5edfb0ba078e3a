// Ops that compute each element from the elements at the same place, with broadcasting.
#include <vector>

#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

constexpr const char* kUnary = "... -> ...";
constexpr const char* kBinary = "..., ... -> ...";
constexpr const char* kVariadic = "...* -> ...";

// Steps and roundings: flat wherever they have a slope at all.
constexpr const char* kFlat = "";

// `grad`: see ops/grads/grads.hpp; null: integers or truth values, or a function.
OpRow unary(const char* type, double flops, const char* grad = nullptr) {
  return {.type = type, .text = kUnary, .flops_per_element = flops, .grad_text = grad};
}

OpRow binary(const char* type, double flops = 1, const char* grad = nullptr) {
  return {.type = type, .text = kBinary, .flops_per_element = flops, .grad_text = grad};
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
      unary("Abs", 1, "g * Sign(x)"),
      unary("Acos", 10, "-g / Sqrt(1 - x * x)"),
      unary("Acosh", 10, "g / Sqrt(x * x - 1)"),
      unary("Asin", 10, "g / Sqrt(1 - x * x)"),
      unary("Asinh", 10, "g / Sqrt(x * x + 1)"),
      unary("Atan", 10, "g / (x * x + 1)"),
      unary("Atanh", 10, "g / (1 - x * x)"),
      unary("BitCast", 0),
      unary("BitwiseNot", 1),
      unary("Ceil", 1, kFlat),
      unary("Celu", 8, "Where(x > 0, g, g * Exp(Min(x, 0) / @alpha=1))"),
      unary("Cos", 10, "-g * Sin(x)"),
      unary("Cosh", 10, "g * Sinh(x)"),
      unary("Elu", 8, "Where(x > 0, g, g * (y + @alpha=1))"),
      unary("Erf", 10, "g * 1.1283791670955126 * Exp(-(x * x))"),
      unary("Exp", 8, "g * y"),
      unary("Floor", 1, kFlat),
      {.type = "Gelu", .text = kUnary, .flops_per_element = 12, .grad = gelu_grad},
      unary("HardSigmoid", 3, "Where(And(y > 0, y < 1), g * @alpha=0.2, 0)"),
      unary("HardSwish", 4, "Where(x > 3, g, Where(x < -3, 0, g * (x / 3 + 0.5)))"),
      unary("IsInf", 1),
      unary("IsNaN", 1),
      unary("LeakyRelu", 2, "Where(x > 0, g, g * @alpha=0.01)"),
      unary("Log", 8, "g / x"),
      unary(
          "Mish", 16,
          "g * (Tanh(Softplus(x)) + x * Sigmoid(x) * (1 - Tanh(Softplus(x)) * Tanh(Softplus(x))))"),
      unary("Not", 1),
      unary("Reciprocal", 4, "-g * y * y"),
      unary("Relu", 1, "Where(y > 0, g, 0)"),
      unary("Round", 1, kFlat),
      unary("Selu", 8,
            "Where(x > 0, g * @gamma=1.0507009873554805, g * (y + @gamma=1.0507009873554805 * "
            "@alpha=1.6732632423543772))"),
      unary("Shrink", 2, "Where(Abs(x) > @lambd=0.5, g, 0)"),
      unary("Sigmoid", 8, "g * y * (1 - y)"),
      unary("Sign", 1, kFlat),
      unary("Sin", 10, "g * Cos(x)"),
      unary("Sinh", 10, "g * Cosh(x)"),
      unary("Softplus", 10, "g * Sigmoid(x)"),
      unary("Softsign", 4, "g / ((1 + Abs(x)) * (1 + Abs(x)))"),
      unary("Sqrt", 4, "g * 0.5 / y"),
      unary("Swish", 9,
            "g * Sigmoid(x * @alpha=1) * (1 + x * @alpha=1 * (1 - Sigmoid(x * @alpha=1)))"),
      unary("Tan", 10, "g * (1 + y * y)"),
      unary("Tanh", 10, "g * (1 - y * y)"),
      unary("ThresholdedRelu", 1, "Where(x > @alpha=1, g, 0)"),
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
      binary("Mod", 4, "g; -g * Sign(x0 / x1) * Floor(Abs(x0 / x1))"),
      binary("Or"),
      binary("PRelu", 2, "Where(x0 > 0, g, g * x1); Where(x0 > 0, 0, g * x0)"),
      {.type = "Pow", .text = kBinary, .flops_per_element = 16, .grad = pow_grad},
      binary("Xor"),
      {.type = "Max", .text = kVariadic, .grad = extremum_grad},
      {.type = "Min", .text = kVariadic, .grad = extremum_grad},
      {.type = "Clip", .text = "..., ..., ... -> ...", .flops_per_element = 2, .grad = clip_grad},
      // Linear in one operand or in several together.
      {.type = "Add",
       .text = "..., ... -> ... | partial: 0 1",
       .grad_text = "g; g",
       .exact_on_integers = true},
      {.type = "Sub",
       .text = "..., ... -> ... | partial: 0 1",
       .grad_text = "g; -g",
       .exact_on_integers = true},
      {.type = "Mul",
       .text = "..., ... -> ... | partial: 0, 1",
       .grad_text = "g * x1; g * x0",
       .exact_on_integers = true},
      {.type = "Div",
       .text = "..., ... -> ... | partial: 0",
       .flops_per_element = 4,
       .grad_text = "g / x1; -g * y / x1"},
      {.type = "Sum",
       .text = "...* -> ... | partial: *",
       .grad_text = "*g",
       .exact_on_integers = true},
      {.type = "Mean", .text = "...* -> ... | partial: *", .grad = mean_grad},
      {.type = "Neg",
       .text = "... -> ... | partial: 0",
       .grad_text = "-g",
       .exact_on_integers = true},
      {.type = "Where",
       .text = "..., ..., ... -> ... | partial: 1 2",
       .grad_text = "; Where(x0, g, 0); Where(x0, 0, g)",
       .exact_on_integers = true},
      // Rounding apart, a cast of a sum is the sum of the casts.
      {.type = "Cast", .rule = sums_on_rule, .grad = cast_grad},
      {.type = "CastLike",
       .rule = cast_like_rule,
       .grad = cast_grad,
       .operands = operand_bits({1})},
      {.type = "Dropout",
       .rule = dropout_rule,
       .grad = dropout_grad,
       .operands = operand_bits({1, 2}),
       .rewrite = set_common_seed},
  };
  return rows;
}

}  // namespace autopar
