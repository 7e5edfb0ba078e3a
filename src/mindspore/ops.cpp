#include "mindspore/ops.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace autopar::mindspore {

Counted counted(const Op& op) {
  static const std::map<std::string, Counted> table = {
      {"Softmax", Counted::kOutput},   {"LogSoftmax", Counted::kOutput},
      {"Tile", Counted::kOutput},      {"Reshape", Counted::kNothing},
      {"Flatten", Counted::kNothing},  {"Shape", Counted::kNothing},
      {"Size", Counted::kNothing},     {"Range", Counted::kNothing},
      {"Dropout", Counted::kDropout},  {"Gather", Counted::kGather},
      {"Identity", Counted::kNothing},
  };
  const auto found = op.domain.empty() ? table.find(op.type) : table.end();
  return found == table.end() ? Counted::kInputs : found->second;
}

bool takes_any_layout(const Op& op) { return op.type == "Reshape" || op.type == "Flatten"; }

bool is_elementwise(const Op& op) {
  static const std::set<std::string> types = {
      "Abs",        "Add",  "And",   "Cast",  "Ceil",    "Cos",     "Div",  "Elu",
      "Equal",      "Erf",  "Exp",   "Floor", "Gelu",    "Greater", "Less", "Log",
      "Max",        "Min",  "Mod",   "Mul",   "Neg",     "Not",     "Or",   "Pow",
      "Reciprocal", "Relu", "Round", "Selu",  "Sigmoid", "Sign",    "Sin",  "Softplus",
      "Softsign",   "Sqrt", "Sub",   "Tanh",  "Where",   "Xor"};
  return op.domain.empty() && types.count(op.type) != 0;
}

bool stays_whole(const Op& op, const Rule& rule, int factor, DeviceUse use) {
  const Factor& f = rule.factors[static_cast<std::size_t>(factor)];
  if (f.kind == FactorKind::kWhole || f.kind == FactorKind::kPartial ||
      f.kind == FactorKind::kExchange || f.kind == FactorKind::kMoving) {
    return true;
  }
  if (f.kind == FactorKind::kHalo && use != DeviceUse::kAnyAxes) return true;
  if (op.type != "PRelu" || rule.inputs.size() < 2) return false;
  return std::any_of(rule.inputs[1].begin(), rule.inputs[1].end(), [&](const auto& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

}  // namespace autopar::mindspore
