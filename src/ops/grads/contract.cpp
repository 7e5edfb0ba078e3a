#include "ops/grads/contract.hpp"

namespace autopar {
namespace {

// Without the dimensions of extent 1.
Lettered squeezed(GraphBuilder& to, const Lettered& operand) {
  Lettered small;
  Shape shape;
  const Shape whole = to.shape(operand.value);
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (whole[d] == 1) continue;
    shape.push_back(whole[d]);
    small.letters += operand.letters[d];
  }
  small.value = to.reshape(operand.value, shape);
  return small;
}

bool has(const std::vector<Lettered>& operands, char letter) {
  for (const Lettered& operand : operands) {
    if (operand.letters.find(letter) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

ValueId contract(GraphBuilder& to, std::vector<Lettered> operands, const std::string& letters,
                 const std::map<char, std::int64_t>& extents, const Shape& target) {
  std::vector<ValueId> scalars;
  std::vector<Lettered> tensors;
  double repeated = 1;  // letters that are summed over and that nothing depends on
  for (const Lettered& operand : operands) {
    Lettered small = squeezed(to, operand);
    if (small.letters.empty()) {
      scalars.push_back(small.value);
    } else {
      tensors.push_back(std::move(small));
    }
  }
  std::string kept;
  Shape kept_shape, placed(target.size(), 1);
  for (std::size_t d = 0; d < letters.size(); ++d) {
    if (target[d] == 1 || !has(tensors, letters[d])) continue;
    kept += letters[d];
    kept_shape.push_back(target[d]);
    placed[d] = target[d];
  }
  for (const auto& [letter, extent] : extents) {
    const std::size_t at = letters.find(letter);
    const bool stays = at != std::string::npos && target[at] != 1;
    if (!stays && !has(tensors, letter)) repeated *= static_cast<double>(extent);
  }
  ValueId product;
  if (!tensors.empty()) {
    std::string equation;
    std::vector<ValueId> inputs;
    for (const Lettered& tensor : tensors) {
      equation += (equation.empty() ? "" : ",") + tensor.letters;
      inputs.push_back(tensor.value);
    }
    product = equation == kept ? inputs[0] : to.einsum(equation + "->" + kept, inputs, kept_shape);
  }
  for (ValueId scalar : scalars) {
    product = product.valid() ? to.pointwise("Mul", {product, scalar}) : scalar;
  }
  product = to.scaled(product, repeated);
  return to.broadcast_to(to.reshape(product, placed), target);
}

}  // namespace autopar
