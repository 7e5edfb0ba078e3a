#include "planning/gemm_pins.hpp"

namespace autopar {

namespace {

using Counts = std::vector<std::int64_t>;

// The op that adds C to the product, among those after it that the Gemm became; invalid where
// nothing does. In a training step its name alone tells.
OpId adding_op(const Graph& graph, OpId product) {
  const Op& gemm = graph.op(product);
  const std::string name = gemm.name + "/add";
  for (std::size_t o = product.index() + 1; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    const bool is_of_gemm =
        op.name == name || (!gemm.origin_name.empty() && op.origin_name == gemm.origin_name);
    if (is_of_gemm && op.type == "Add" && op.inputs[0] == gemm.outputs[0]) {
      return OpId(static_cast<std::int64_t>(o));
    }
  }
  return {};
}

// How many parts the counts of A and B make of the rows and columns of the result, and of what is
// summed over.
struct ProductParts {
  std::int64_t rows = 1, columns = 1, summed = 1;
};
std::optional<ProductParts> parts_of(const OpPin& pin, const Op& product) {
  const auto& counts = *pin.in_strategy;
  if (counts.size() < 2 || counts[0].size() != 2 || counts[1].size() != 2) return {};
  const std::size_t row = product.int_attribute("transA", 0) != 0 ? 1 : 0;
  const std::size_t column = product.int_attribute("transB", 0) != 0 ? 0 : 1;
  return ProductParts{counts[0][row], counts[1][column], counts[0][1 - row]};
}

// C is broadcast to the result: where it has a dimension, it is cut as the result is.
Counts as_added(const Shape& shape, const Counts& result) {
  Counts counts(shape.size(), 1);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) counts[d] = result[result.size() - shape.size() + d];
  }
  return counts;
}

Status check_added(const Op& product, const Counts& asked, const Counts& needed,
                   const Counts& result) {
  if (asked == needed) return Ok{};
  return input_error("op '" + product.name + "' (Gemm): in_strategy cuts C into " + to_text(asked) +
                     ", but the result into " + to_text(result) +
                     ", to which C is added: expected " + to_text(needed) + " for C");
}

// The same axes for the rows and columns of the sum; nothing where the product is a partial sum.
std::optional<std::map<std::string, std::string>> assignment_of_sum(
    const std::map<std::string, std::string>& asked, const Rule& rule) {
  std::map<std::string, std::string> kept;
  for (const auto& [axis, factor] : asked) {
    if (factor.empty() || factor == "none") continue;
    if (factor != "m" && factor != "n") return {};
    const std::vector<int>& factors = rule.outputs[0][factor == "m" ? 0 : 1];
    if (factors.empty()) return {};
    kept[axis] = rule.factors[static_cast<std::size_t>(factors.front())].name;
  }
  return kept;
}

}  // namespace

Result<OpPin> pin_gemm(OpPin pin, const Graph& graph, const GraphRules& rules, OpId product,
                       std::map<std::string, OpPin>& pins) {
  const Op& op = graph.op(product);
  const OpId adding = adding_op(graph, product);
  if (!adding.valid()) return pin;
  const Op& add = graph.op(adding);
  const Shape& added = graph.value(add.inputs[1]).shape;
  OpPin sum;
  if (pin.in_strategy) {
    const auto parts = parts_of(pin, op);
    const bool partial = parts && parts->summed > 1;
    const bool says_sum = partial && pin.out_strategy && pin.out_strategy->size() == 1;
    const bool says_added = pin.in_strategy->size() == 3;
    if (parts) {
      Counts result = {parts->rows, parts->columns};
      if (says_sum && pin.out_strategy->front().size() == 2) result = pin.out_strategy->front();
      const Counts needed = as_added(added, result);
      if (says_added) {
        AUTOPAR_RETURN_IF_ERROR(check_added(op, pin.in_strategy->back(), needed, result));
        pin.in_strategy->pop_back();
      }
      // How partial sums are reduced is free unless the pin says it.
      if (!partial || says_sum || says_added) sum.in_strategy.emplace({result, needed});
    }
    if (says_sum) pin.out_strategy.reset();
  }
  if (pin.assignment) {
    sum.assignment = assignment_of_sum(*pin.assignment, rules.rules[adding.index()]);
    if (sum.assignment) sum.in_strategy.reset();
  }
  if (sum.in_strategy || sum.assignment) pins.emplace(add.name, std::move(sum));
  return pin;
}

}  // namespace autopar
