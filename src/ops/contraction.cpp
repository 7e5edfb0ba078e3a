// Products that sum over shared dimensions: MatMul, Gemm, Einsum.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "ops/equation.hpp"
#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

RuleText matmul_rule(const OpView& view) {
  const bool vector0 = view.in(0).size() == 1;
  const bool vector1 = view.in(1).size() == 1;
  std::string text = "... m k+, ... k+ n -> ... m n";
  if (vector0 && vector1) text = "k+, k+ ->";
  if (vector0 && !vector1) text = "k+, ... k+ n -> ... n";
  if (!vector0 && vector1) text = "... m k+, k+ -> ... m";
  // Of two grids of parts one row and one column at a time is enough.
  const bool grid = view.in(0).size() >= 2 && view.in(1).size() == 2;
  return text + (grid ? " | moving row col: m k, k n -> m n" : "") + " | partial: 0, 1";
}

RuleText gemm_rule(const OpView& view) {
  const std::string a = view.op.int_attribute("transA", 0) != 0 ? "k+ m" : "m k+";
  const std::string b = view.op.int_attribute("transB", 0) != 0 ? "n k+" : "k+ n";
  if (!view.op.has_input(2)) {
    return a + ", " + b + " -> m n | moving row col: m k, k n -> m n | partial: 0, 1";
  }
  const std::string c = view.in(2).size() == 2 ? "m n" : view.in(2).empty() ? "" : "n";
  return a + ", " + b + ", " + c + " -> m n | partial: 0 2, 1 2 | summand k: 2";
}

Work gemm_work(const Op& op, const OpShapes& shapes) {
  const std::size_t contracted = op.int_attribute("transA", 0) != 0 ? 0 : 1;
  Work work = streaming_work(op, shapes);
  const Shape& left = shape_at(shapes.inputs, 0);
  if (left.size() != 2) return work;
  work.flops = 2 * static_cast<double>(left[contracted]) * elements_of(shapes.outputs, 0);
  return work;
}

std::string einsum_dims(const std::string& letters, const std::set<char>& summed,
                        const std::set<char>& whole) {
  std::vector<std::string> words;
  for (char letter : letters) {
    std::string word = letter == '.' ? "..." : std::string(1, letter);
    if (summed.count(letter) != 0) word += '+';
    if (whole.count(letter) != 0) word = "_";
    words.push_back(word);
  }
  return join(words);
}

RuleText einsum_rule(const OpView& view) {
  const auto equation =
      parse_equation(view.op.string_attribute("equation", ""), view.shapes.inputs.size());
  if (!equation) return std::nullopt;
  std::set<char> summed, whole;
  for (const std::string& input : equation->inputs) {
    for (char letter : input) {
      // A diagonal needs both of its dimensions whole; so does a summed ellipsis.
      const bool twice = input.find(letter) != input.rfind(letter);
      const bool kept = equation->output.find(letter) != std::string::npos;
      if (twice || (letter == '.' && !kept)) whole.insert(letter);
      if (!kept) summed.insert(letter);
    }
  }
  if (whole.count('.') != 0) return std::nullopt;
  std::string text, groups;
  for (std::size_t i = 0; i < equation->inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + einsum_dims(equation->inputs[i], summed, whole);
    groups += (i > 0 ? ", " : "") + std::to_string(i);
  }
  return text + " -> " + einsum_dims(equation->output, {}, whole) + " | partial: " + groups;
}

// One multiplication and one addition per combination of all letters: exact for two operands.
Work einsum_work(const Op& op, const OpShapes& shapes) {
  Work work = streaming_work(op, shapes);
  const auto equation = parse_equation(op.string_attribute("equation", ""), shapes.inputs.size());
  if (!equation) return work;
  std::map<char, double> extents;
  for (std::size_t t = 0; t < equation->inputs.size(); ++t) {
    const std::string& letters = equation->inputs[t];
    const Shape& shape = shapes.inputs[t];
    std::size_t d = 0;
    for (char letter : letters) {
      // An ellipsis covers what the letters leave.
      const std::size_t named = letters.size() - 1;
      const std::size_t covered = letter != '.' ? 1 : shape.size() - std::min(named, shape.size());
      double extent = 1;
      for (std::size_t i = 0; i < covered && d < shape.size(); ++i) {
        extent *= static_cast<double>(shape[d++]);
      }
      extents[letter] = std::max(extents[letter], extent);
    }
  }
  work.flops = equation->inputs.size() > 1 ? 2 : 1;
  for (const auto& [letter, extent] : extents) work.flops *= extent;
  return work;
}

}  // namespace

Work matmul_work(const Op& op, const OpShapes& shapes) {
  const Shape& left = shape_at(shapes.inputs, 0);
  const double k = left.empty() ? 1 : static_cast<double>(left.back());
  Work work = streaming_work(op, shapes);
  work.flops = 2 * k * elements_of(shapes.outputs, 0);
  return work;
}

std::span<const OpRow> contraction_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "MatMul",
       .rule = matmul_rule,
       .work = matmul_work,
       .grad = matmul_grad,
       .moving = move_products,
       .exact_on_integers = true},
      {.type = "Gemm",
       .rule = gemm_rule,
       .work = gemm_work,
       .grad = gemm_grad,
       .moving = move_products,
       .exact_on_integers = true},
      {.type = "Einsum",
       .rule = einsum_rule,
       .work = einsum_work,
       .grad = einsum_grad,
       .exact_on_integers = true},
  };
  return rows;
}

}  // namespace autopar
