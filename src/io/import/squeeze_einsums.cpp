// Einsums in which a letter is 1 long in one operand and more in another. ONNX's inference takes
// the size of the first operand that has the letter; runtimes broadcast.
#include <algorithm>
#include <map>
#include <utility>

#include "io/import/passes.hpp"
#include "ops/equation.hpp"

namespace autopar {
namespace {

// The letter of each dimension; '.' for those of an ellipsis. Nothing where they do not fit.
std::optional<std::string> letters_of(const std::string& input, std::size_t rank) {
  const std::size_t gap = input.find('.');
  if (gap == std::string::npos) return input.size() == rank ? std::optional(input) : std::nullopt;
  if (input.size() - 1 > rank) return std::nullopt;
  return input.substr(0, gap) + std::string(rank - (input.size() - 1), '.') + input.substr(gap + 1);
}

// Per letter, the largest of its sizes.
std::optional<std::map<char, std::int64_t>> sizes_of(const Equation& equation,
                                                     const std::vector<Shape>& shapes) {
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const auto letters = letters_of(equation.inputs[i], shapes[i].size());
    if (!letters) return std::nullopt;
    for (std::size_t d = 0; d < letters->size(); ++d) {
      // Of 1 and 0, it is the 0 that stays.
      std::int64_t& size = sizes.try_emplace((*letters)[d], 1).first->second;
      if (shapes[i][d] != 1) size = shapes[i][d];
    }
  }
  return sizes;
}

// What the ellipses stand for, from the last dimension on.
Shape under_ellipsis(const Equation& equation, const std::vector<Shape>& shapes) {
  Shape found;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::string letters = *letters_of(equation.inputs[i], shapes[i].size());
    Shape own;
    for (std::size_t d = 0; d < letters.size(); ++d) {
      if (letters[d] == '.') own.push_back(shapes[i][d]);
    }
    if (own.size() > found.size()) found.insert(found.begin(), own.size() - found.size(), 1);
    for (std::size_t d = 0; d < own.size(); ++d) {
      std::int64_t& extent = found[found.size() - own.size() + d];
      if (own[d] != 1) extent = own[d];
    }
  }
  return found;
}

std::string text_of(const Equation& equation) {
  std::string text;
  for (const std::string& input : equation.inputs)
    text += (&input == equation.inputs.data() ? "" : ",") + input;
  text += "->" + equation.output;
  for (std::size_t at = 0; (at = text.find('.', at)) != std::string::npos; at += 3) {
    text.replace(at, 1, "...");
  }
  return text;
}

}  // namespace

std::optional<Shape> einsum_shape(const std::string& text, const std::vector<Shape>& shapes) {
  const auto equation = parse_equation(text, shapes.size());
  if (!equation) return std::nullopt;
  const auto sizes = sizes_of(*equation, shapes);
  if (!sizes) return std::nullopt;
  Shape shape;
  for (char letter : equation->output) {
    if (letter == '.') {
      const Shape rest = under_ellipsis(*equation, shapes);
      shape.insert(shape.end(), rest.begin(), rest.end());
      continue;
    }
    const auto size = sizes->find(letter);
    if (size == sizes->end()) return std::nullopt;
    shape.push_back(size->second);
  }
  return shape;
}

namespace {

// Appends the Reshapes that an Einsum needs.
void squeeze(Normalisation& n, Op& op, std::vector<Op>& ops) {
  std::vector<Shape> shapes;
  for (ValueId input : op.inputs) shapes.push_back(n.graph.value(input).shape);
  auto equation = parse_equation(op.string_attribute("equation", ""), shapes.size());
  const auto sizes = equation ? sizes_of(*equation, shapes) : std::nullopt;
  for (std::size_t i = 0; sizes && i < shapes.size(); ++i) {
    const std::string letters = *letters_of(equation->inputs[i], shapes[i].size());
    Shape kept;
    std::string& left = equation->inputs[i];
    for (std::size_t d = 0; d < letters.size(); ++d) {
      if (letters[d] == '.' || shapes[i][d] != 1 || sizes->at(letters[d]) == 1) {
        kept.push_back(shapes[i][d]);
      } else {
        left.erase(left.find(letters[d]), 1);
      }
    }
    if (kept.size() == shapes[i].size()) continue;
    const DType dtype = n.graph.value(op.inputs[i]).dtype;
    const std::string name = n.graph.value(op.inputs[i]).name + "/squeezed";
    const Tensor shape = int64_tensor({static_cast<std::int64_t>(kept.size())}, kept);
    Op reshape;
    reshape.name = n.op_names.unique(op.name + "/squeeze");
    reshape.type = "Reshape";
    reshape.inputs = {op.inputs[i], n.add_constant(shape, name + "/shape")};
    reshape.outputs = {n.add_activation(dtype, kept, name)};
    reshape.origin_name = op.origin_name;
    reshape.origin_type = op.origin_type;
    reshape.phase = op.phase;
    op.inputs[i] = reshape.outputs[0];
    op.attributes["equation"] = text_of(*equation);
    ops.push_back(std::move(reshape));
  }
}

}  // namespace

void squeeze_einsums(Normalisation& n) {
  std::vector<Op> old = std::move(n.graph.ops);
  std::vector<Op> ops;
  for (Op& op : old) {
    if (op.type == "Einsum" && op.domain.empty()) squeeze(n, op, ops);
    ops.push_back(std::move(op));
  }
  replace_ops(n.graph, std::move(ops));
}

}  // namespace autopar
