// Formulas of gradients, parsed to ops as they are read: recursive descent over
//   test:    sum [("<" | "<=" | ">" | ">=" | "==") sum]
//   sum:     product {("+" | "-") product}
//   product: unary {("*" | "/") unary}
//   unary:   "-" unary | atom
//   atom:    number | "@" name "=" number | name | name "(" test {"," test} ")" | "(" test ")"
// Formulas are part of the program: one that is wrong is a bug.
#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

// A number has no type before it meets a tensor.
struct Term {
  ValueId value;  // invalid: a number
  double number = 0;
};

class Formula {
 public:
  Formula(const GradContext& context, const std::string& text, std::size_t input)
      : context_(context), text_(text), input_(input) {}

  ValueId run() {
    const Term term = parse_test();
    skip();
    AUTOPAR_CHECK(at_ == text_.size(), "the formula of a gradient ends early: " + text_);
    return typed(term);
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(const std::string& word) {
    skip();
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  Term parse_test() {
    const Term left = parse_sum();
    struct Test {
      const char* sign;
      const char* type;
    };
    for (const Test& test : {Test{"<=", "LessOrEqual"}, Test{">=", "GreaterOrEqual"},
                             Test{"==", "Equal"}, Test{"<", "Less"}, Test{">", "Greater"}}) {
      if (!take(test.sign)) continue;
      const Term right = parse_sum();
      return {context_.to.test(test.type, {typed(left), typed(right)}), 0};
    }
    return left;
  }

  Term parse_sum() {
    Term sum = parse_product();
    while (true) {
      if (take("+")) {
        sum = join("Add", sum, parse_product());
      } else if (take("-")) {
        sum = join("Sub", sum, parse_product());
      } else {
        return sum;
      }
    }
  }

  Term parse_product() {
    Term product = parse_unary();
    while (true) {
      if (take("*")) {
        product = join("Mul", product, parse_unary());
      } else if (take("/")) {
        product = join("Div", product, parse_unary());
      } else {
        return product;
      }
    }
  }

  Term parse_unary() {
    if (!take("-")) return parse_atom();
    const Term term = parse_unary();
    if (!term.value.valid()) return {ValueId(), -term.number};
    return {context_.to.pointwise("Neg", {term.value}), 0};
  }

  Term parse_atom() {
    skip();
    if (take("(")) {
      const Term inside = parse_test();
      AUTOPAR_CHECK(take(")"), "a parenthesis is missing in " + text_);
      return inside;
    }
    if (take("@")) {
      const std::string name = word();
      AUTOPAR_CHECK(take("="), "an attribute without a default in " + text_);
      return {ValueId(), context_.op.float_attribute(name, number())};
    }
    if (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) return {ValueId(), number()};
    const std::string name = word();
    if (take("(")) return call(name);
    return {variable(name), 0};
  }

  Term call(const std::string& type) {
    std::vector<Term> terms = {parse_test()};
    while (take(",")) terms.push_back(parse_test());
    AUTOPAR_CHECK(take(")"), "a parenthesis is missing in " + text_);
    std::vector<ValueId> inputs;
    for (const Term& term : terms) inputs.push_back(typed(term));
    if (type == "And" || type == "Or" || type == "Not") {
      return {context_.to.test(type, inputs), 0};
    }
    return {context_.to.pointwise(type, inputs), 0};
  }

  std::string word() {
    skip();
    std::string name;
    while (at_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[at_])) != 0) {
      name += text_[at_++];
    }
    AUTOPAR_CHECK(!name.empty(), "a name is missing in " + text_);
    return name;
  }

  double number() {
    char* end = nullptr;
    const double value = std::strtod(text_.c_str() + at_, &end);
    at_ = static_cast<std::size_t>(end - text_.c_str());
    return value;
  }

  ValueId variable(const std::string& name) const {
    if (name == "g") return context_.grad();
    if (name == "y") return context_.out(0);
    if (name == "x") return context_.in(input_);
    AUTOPAR_CHECK(name.size() == 2 && name[0] == 'x', "unknown name in " + text_);
    return context_.in(static_cast<std::size_t>(name[1] - '0'));
  }

  // Numbers are of the type of the gradient.
  ValueId typed(const Term& term) const {
    if (term.value.valid()) return term.value;
    return context_.to.scalar(context_.to.dtype(context_.grad()), term.number);
  }

  Term join(const char* type, const Term& left, const Term& right) const {
    if (left.value.valid() || right.value.valid()) {
      return {context_.to.pointwise(type, {typed(left), typed(right)}), 0};
    }
    const double a = left.number, b = right.number;
    const std::string sign = type;
    return {ValueId(), sign == "Add"   ? a + b
                       : sign == "Sub" ? a - b
                       : sign == "Mul" ? a * b
                                       : a / b};
  }

  const GradContext& context_;
  const std::string text_;
  std::size_t input_;
  std::size_t at_ = 0;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == ';') {
      parts.emplace_back();
    } else if (c != ' ' || !parts.back().empty()) {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

Result<InputGrads> formula_gradients(const GradContext& context, const char* text) {
  std::vector<std::string> formulas = split(text);
  InputGrads grads(context.op.inputs.size());
  if (!context.grad().valid()) return grads;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!context.wants(i)) continue;
    const bool all_alike = formulas.back().starts_with('*') && i + 1 >= formulas.size();
    if (i >= formulas.size() && !all_alike) continue;
    const std::string formula = all_alike ? formulas.back().substr(1) : formulas[i];
    if (formula.empty()) continue;
    if (formula == "-g") {
      // The sign of the sum, which may be much smaller.
      const ValueId sum = context.to.sum_to(context.grad(), context.in_shape(i));
      grads[i] = context.to.pointwise("Neg", {sum});
      continue;
    }
    const ValueId grad = Formula(context, formula, i).run();
    // A gradient that does not depend on the input's shape is that of the output.
    const Shape whole = broadcast_shape({context.to.shape(grad), context.in_shape(i)});
    grads[i] = context.to.sum_to(context.to.broadcast_to(grad, whole), context.in_shape(i));
  }
  return grads;
}

}  // namespace autopar
