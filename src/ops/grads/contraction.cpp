// Gradients of sums of products: of each operand the sum of products of the output's gradient with
// the other operands, over what that operand lacks.
#include <algorithm>
#include <numeric>

#include "ops/equation.hpp"
#include "ops/grads/contract.hpp"
#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// An op as one equation with explicit letters.
struct Lettering {
  std::vector<std::string> inputs;
  std::string output;
  std::map<char, std::int64_t> extents;  // the largest of what stands under a letter
};

void measure(Lettering& lettering, const std::string& letters, const Shape& shape) {
  for (std::size_t d = 0; d < letters.size(); ++d) {
    std::int64_t& extent = lettering.extents[letters[d]];
    extent = std::max(extent, shape[d]);
  }
}

// The diagonal of what has a letter several times, with each letter once; other things as they are.
Lettered diagonal(GraphBuilder& to, const Lettered& operand) {
  Lettered once = operand;
  once.letters.clear();
  Shape shape;
  const Shape whole = to.shape(operand.value);
  for (std::size_t d = 0; d < operand.letters.size(); ++d) {
    if (once.letters.find(operand.letters[d]) != std::string::npos) continue;
    once.letters += operand.letters[d];
    shape.push_back(whole[d]);
  }
  if (once.letters.size() == operand.letters.size()) return operand;
  once.value = to.einsum(operand.letters + "->" + once.letters, {operand.value}, shape);
  return once;
}

// 1 where the places of all dimensions with the same letter are equal, to be multiplied with what
// is broadcast over them.
ValueId on_diagonal(GraphBuilder& to, ValueId value, const std::string& letters,
                    const Shape& shape) {
  for (std::size_t d = 0; d < letters.size(); ++d) {
    const std::size_t first = letters.find(letters[d]);
    if (first == d || shape[d] == 1) continue;
    const auto counted = [&](std::size_t at) {
      std::vector<std::int64_t> numbers(static_cast<std::size_t>(shape[at]));
      std::iota(numbers.begin(), numbers.end(), 0);
      Shape along(shape.size(), 1);
      along[at] = shape[at];
      return to.constant(int64_tensor(along, numbers));
    };
    const ValueId hit = to.test("Equal", {counted(first), counted(d)});
    value = to.pointwise("Where", {hit, value, to.scalar(to.dtype(value), 0)});
  }
  return value;
}

ValueId operand_grad(const GradContext& context, std::vector<Lettered> operands,
                     const Lettering& lettering, std::size_t i) {
  GraphBuilder& to = context.to;
  for (Lettered& operand : operands) operand = diagonal(to, operand);
  const std::string& letters = lettering.inputs[i];
  const Shape whole = context.in_shape(i);
  std::string once;
  Shape target, spread(whole.size(), 1);
  for (std::size_t d = 0; d < letters.size(); ++d) {
    if (once.find(letters[d]) != std::string::npos) continue;
    once += letters[d];
    target.push_back(whole[d]);
    spread[d] = whole[d];
  }
  const ValueId grad = contract(to, operands, once, lettering.extents, target);
  if (once == letters) return grad;
  return on_diagonal(to, to.reshape(grad, spread), letters, whole);
}

Result<InputGrads> product_grads(const GradContext& context, Lettering lettering, double factor) {
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  for (std::size_t i = 0; i < lettering.inputs.size(); ++i) {
    measure(lettering, lettering.inputs[i], context.in_shape(i));
  }
  measure(lettering, lettering.output, context.out_shape(0));
  for (std::size_t i = 0; i < lettering.inputs.size(); ++i) {
    if (!context.wants(i)) continue;
    // In the order of the forward op: the gradient stands where the output of that operand went.
    std::vector<Lettered> operands = {{context.grad(), lettering.output}};
    for (std::size_t other = 0; other < lettering.inputs.size(); ++other) {
      if (other == i) continue;
      const Lettered operand = {context.in(other), lettering.inputs[other]};
      operands.insert(other < i ? operands.end() - 1 : operands.end(), operand);
    }
    grads[i] = context.to.scaled(operand_grad(context, operands, lettering, i), factor);
  }
  return grads;
}

constexpr const char* kBatchLetters = "abcdefghijlopqrstuvwxyz";

// Letters of the leading dimensions, aligned from the right.
std::string batch_letters(std::size_t rank, std::size_t most) {
  return std::string(kBatchLetters + (most - rank), kBatchLetters + most);
}

}  // namespace

Result<InputGrads> matmul_grad(const GradContext& context) {
  const std::size_t rank0 = context.in_shape(0).size(), rank1 = context.in_shape(1).size();
  const std::size_t batch0 = rank0 > 2 ? rank0 - 2 : 0, batch1 = rank1 > 2 ? rank1 - 2 : 0;
  const std::size_t most = std::max(batch0, batch1);
  Lettering lettering;
  lettering.inputs = {batch_letters(batch0, most) + (rank0 > 1 ? "mk" : "k"),
                      batch_letters(batch1, most) + (rank1 > 1 ? "kn" : "k")};
  lettering.output = batch_letters(most, most) + (rank0 > 1 ? "m" : "") + (rank1 > 1 ? "n" : "");
  return product_grads(context, lettering, 1);
}

Result<InputGrads> gemm_grad(const GradContext& context) {
  const bool across0 = context.op.int_attribute("transA", 0) != 0;
  const bool across1 = context.op.int_attribute("transB", 0) != 0;
  Lettering lettering;
  lettering.inputs = {across0 ? "km" : "mk", across1 ? "nk" : "kn"};
  lettering.output = "mn";
  AUTOPAR_TRY(grads, product_grads(context, lettering, context.op.float_attribute("alpha", 1)));
  if (context.grad().valid() && context.wants(2)) {
    const double beta = context.op.float_attribute("beta", 1);
    grads[2] = context.to.sum_to(context.to.scaled(context.grad(), beta), context.in_shape(2));
  }
  return std::move(grads);
}

Result<InputGrads> einsum_grad(const GradContext& context) {
  const auto equation =
      parse_equation(context.op.string_attribute("equation", ""), context.op.inputs.size());
  if (!equation) return no_gradient(context, "where its equation is not understood");
  // Letters of their own for what the ellipses stand for.
  std::string free;
  for (char letter = 'A'; letter <= 'z'; ++letter) {
    if (letter > 'Z' && letter < 'a') continue;
    const auto names = [&](const std::string& text) { return text.find(letter) != text.npos; };
    if (!names(equation->output) &&
        std::none_of(equation->inputs.begin(), equation->inputs.end(), names)) {
      free += letter;
    }
  }
  std::size_t most = 0;
  for (std::size_t i = 0; i < equation->inputs.size(); ++i) {
    const std::string& letters = equation->inputs[i];
    if (letters.find('.') == letters.npos) continue;
    most = std::max(most, context.in_shape(i).size() + 1 - letters.size());
  }
  if (most > free.size()) return no_gradient(context, "with more dimensions than letters");
  const auto spelt = [&](std::string letters, std::size_t rank) {
    const std::size_t dots = letters.find('.');
    if (dots == letters.npos) return letters;
    const std::size_t covered = rank + 1 - letters.size();
    return letters.replace(dots, 1, free.substr(most - covered, covered));
  };
  Lettering lettering;
  for (std::size_t i = 0; i < equation->inputs.size(); ++i) {
    lettering.inputs.push_back(spelt(equation->inputs[i], context.in_shape(i).size()));
  }
  lettering.output = spelt(equation->output, context.out_shape(0).size());
  return product_grads(context, lettering, 1);
}

}  // namespace autopar
