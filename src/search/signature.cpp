#include "search/signature.hpp"

namespace autopar {

namespace {

void append(std::string& text, const Attribute& attribute) {
  text += std::to_string(attribute.index()) + ":";
  std::visit(
      [&text](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          text += value;
        } else if constexpr (std::is_same_v<T, Tensor>) {
          text += to_text(value.shape) + value.bytes;
        } else if constexpr (std::is_arithmetic_v<T>) {
          text += std::to_string(value);
        } else {
          for (const auto& v : value) {
            if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
              text += v + ",";
            } else {
              text += std::to_string(v) + ",";
            }
          }
        }
      },
      attribute);
}

void append(std::string& text, const Graph& graph, ValueId id) {
  if (!id.valid()) {
    text += "|-";
    return;
  }
  const Value& value = graph.value(id);
  text += std::string("|") + name_of(value.dtype) + to_text(value.shape);
}

}  // namespace

std::string signature(const Graph& graph, const Op& op, const Rule& rule) {
  std::string text = op.domain + "::" + op.type + "{" + to_text(rule) + "}";
  for (const auto& [name, attribute] : op.attributes) {
    text += ";" + name + "=";
    append(text, attribute);
  }
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    append(text, graph, op.inputs[i]);
    if (!op.has_input(i)) continue;
    const Value& value = graph.value(op.inputs[i]);
    text += value.kind == ValueKind::kConstant ? "c" : "";
    const Tensor* tensor = value.tensor();
    if (tensor && value.kind == ValueKind::kConstant && is_operand_constant(op, i)) {
      text += "=" + tensor->bytes;
    }
  }
  text += ">";
  for (ValueId output : op.outputs) append(text, graph, output);
  return text;
}

}  // namespace autopar
