// From an op to its rule: the row's text, read against the op's shapes.
#include <algorithm>

#include "ops/table.hpp"

namespace autopar {
namespace {

const std::string* user_text(const Op& op, const UserRules& user) {
  auto found = user.text_of_type.find(op.domain.empty() ? op.type : op.domain + "::" + op.type);
  return found == user.text_of_type.end() ? nullptr : &found->second;
}

// An absent optional output needs no factors.
Status verify_present(Rule rule, OpShapes shapes, const Op& op) {
  for (std::size_t t = op.outputs.size(); t-- > 0;) {
    if (op.has_output(t)) continue;
    for (Factor& factor : rule.factors) {
      if (factor.kind != FactorKind::kMoving) continue;
      factor.moving_outputs.erase(factor.moving_outputs.begin() + static_cast<std::ptrdiff_t>(t));
    }
    rule.outputs.erase(rule.outputs.begin() + static_cast<std::ptrdiff_t>(t));
    shapes.outputs.erase(shapes.outputs.begin() + static_cast<std::ptrdiff_t>(t));
  }
  return verify(rule, shapes);
}

bool reduces(FactorKind kind) {
  return kind == FactorKind::kSum || kind == FactorKind::kMax || kind == FactorKind::kMin;
}

// Sums of bool do not exist, and sums of integers pass only through ops that are exact on them.
void keep_to_dtypes(Rule& rule, const OpShapes& shapes, bool exact_on_integers) {
  const auto summable = [&](DType dtype) {
    return is_floating(dtype) || (exact_on_integers && dtype != DType::kBool);
  };
  const bool outputs_summable =
      std::all_of(shapes.output_dtypes.begin(), shapes.output_dtypes.end(), summable);
  // kPartial factors are no part of any dimension, and they come last.
  std::erase_if(rule.factors, [&](const Factor& factor) {
    if (factor.kind != FactorKind::kPartial) return false;
    return !outputs_summable ||
           !std::all_of(factor.partial_inputs.begin(), factor.partial_inputs.end(), [&](int i) {
             return summable(shapes.input_dtypes[static_cast<std::size_t>(i)]);
           });
  });
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (!reduces(rule.factors[f].kind)) continue;
    for (std::size_t t = 0; t < rule.outputs.size(); ++t) {
      if (shapes.output_dtypes[t] != DType::kBool) continue;
      if (mentions(rule.outputs[t], static_cast<int>(f))) continue;
      rule.factors[f].kind = FactorKind::kWhole;
      rule.factors[f].partial_inputs.clear();
    }
  }
}

void drop_absent_inputs(Rule& rule, const Op& op) {
  std::erase_if(rule.factors, [&](Factor& factor) {
    const auto absent = [&](int i) { return !op.has_input(static_cast<std::size_t>(i)); };
    const bool erased = std::erase_if(factor.partial_inputs, absent) > 0;
    return factor.kind == FactorKind::kPartial && erased && factor.partial_inputs.empty();
  });
}

RuleText text_of_row(const OpRow& row, const OpView& view) {
  return row.text != nullptr ? RuleText(row.text) : row.rule(view);
}

}  // namespace

bool mentions(const TensorFactors& tensor, int factor) {
  return std::any_of(tensor.begin(), tensor.end(), [&](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

OpShapes shapes_of(const Graph& graph, const Op& op) {
  OpShapes shapes;
  for (ValueId id : op.inputs) {
    shapes.inputs.push_back(id.valid() ? graph.value(id).shape : Shape{});
    shapes.input_dtypes.push_back(id.valid() ? graph.value(id).dtype : DType::kFloat32);
  }
  for (ValueId id : op.outputs) {
    shapes.outputs.push_back(id.valid() ? graph.value(id).shape : Shape{});
    shapes.output_dtypes.push_back(id.valid() ? graph.value(id).dtype : DType::kFloat32);
  }
  return shapes;
}

Rule replicated_rule(const OpShapes& shapes) {
  Rule rule;
  for (const Shape& shape : shapes.inputs) rule.inputs.emplace_back(shape.size());
  for (const Shape& shape : shapes.outputs) rule.outputs.emplace_back(shape.size());
  return rule;
}

Result<RuleOf> rule_of(const Graph& graph, const Op& op, const UserRules& user) {
  const OpShapes shapes = shapes_of(graph, op);
  if (const std::string* text = user_text(op, user)) {
    auto rule = parse_rule(*text, shapes);
    if (!rule) return input_error(described(op) + ": the user's " + rule.error().message);
    drop_absent_inputs(*rule, op);
    for (const Factor& factor : rule->factors) {
      if (factor.kind != FactorKind::kExchange && factor.kind != FactorKind::kHalo &&
          factor.kind != FactorKind::kMoving) {
        continue;
      }
      const char* mark = factor.kind == FactorKind::kExchange ? "~" : "";
      return input_error(
          described(op) + ": the user's rule \"" + *text + "\": factor " + factor.name + mark +
          " needs an exchange that only built-in rules can have; " +
          (factor.kind == FactorKind::kMoving ? "leave it out" : "mark it ^ (whole)"));
    }
    if (Status status = verify_present(*rule, shapes, op); !status) {
      return input_error(described(op) + ": the user's rule \"" + *text +
                         "\": " + status.error().message);
    }
    return RuleOf{std::move(*rule), true};
  }
  const OpRow* row = find_row(op);
  if (row == nullptr) return RuleOf{replicated_rule(shapes), false};
  // Only what nothing is split in has no inputs.
  if (shapes.inputs.empty() || shapes.outputs.empty()) {
    return RuleOf{replicated_rule(shapes), true};
  }
  const RuleText text = text_of_row(*row, {graph, op, shapes});
  if (!text) return RuleOf{replicated_rule(shapes), false};
  // A text that does not fit means shapes that the op's standard does not allow, such as those of
  // a runtime's extension of it.
  auto rule = parse_rule(*text, shapes);
  if (!rule) return RuleOf{replicated_rule(shapes), false};
  keep_to_dtypes(*rule, shapes, row->exact_on_integers);
  drop_absent_inputs(*rule, op);
  if (!verify_present(*rule, shapes, op)) return RuleOf{replicated_rule(shapes), false};
  return RuleOf{std::move(*rule), true};
}

bool is_operand(const OpRow* row, std::size_t port) {
  return row != nullptr && port < 32 && (row->operands >> port & 1) != 0;
}

bool is_operand_constant(const Op& op, std::size_t port) { return is_operand(find_row(op), port); }

bool is_plain_local(const Graph&, const Op& op, const Rule& rule, const Assignment& assignment) {
  const OpRow* row = find_row(op);
  if (row == nullptr) return true;
  return std::none_of(assignment.factor_of_axis.begin(), assignment.factor_of_axis.end(),
                      [&](int factor) {
                        if (factor < 0) return false;
                        const FactorKind kind = rule.factors[static_cast<std::size_t>(factor)].kind;
                        if (kind == FactorKind::kHalo || kind == FactorKind::kMoving) return true;
                        if (row->split == nullptr) return false;
                        return reduces(kind) || kind == FactorKind::kExchange;
                      });
}

}  // namespace autopar
