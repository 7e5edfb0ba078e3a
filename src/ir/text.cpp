#include <charconv>

#include "autopar/ir.hpp"

namespace autopar {

namespace {

constexpr std::size_t kShownElements = 8;

std::string number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end.ptr);
  // A float attribute of value 1 must not read like the integer 1.
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}
std::string number(std::int64_t value) { return std::to_string(value); }
std::string number(const std::string& value) {
  std::string text = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text + "\"";
}

template <class T>
std::string list(const std::vector<T>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += number(values[i]);
  }
  return text + "]";
}

std::string tensor_text(const Tensor& tensor) {
  const auto values = int_values(tensor);
  if (!values || values->size() > kShownElements) {
    return "<" + std::to_string(tensor.bytes.size()) + " bytes>";
  }
  return list(*values);
}

struct AttributeText {
  std::string operator()(std::int64_t value) const { return number(value); }
  std::string operator()(double value) const { return number(value); }
  std::string operator()(const std::string& value) const { return number(value); }
  std::string operator()(const IntList& values) const { return list(values.values()); }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    return list(values);
  }
  std::string operator()(const Tensor& tensor) const {
    return type_text(tensor.dtype, tensor.shape) + tensor_text(tensor);
  }
};

const char* kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kInput:
      return "input";
    case ValueKind::kParameter:
      return "parameter";
    case ValueKind::kConstant:
      return "constant";
    case ValueKind::kActivation:
      return "activation";
  }
  return "";
}

std::string source_text(const Value& value) {
  std::string text = std::string(kind_name(value.kind)) + " " + value.name + ": " +
                     type_text(value.dtype, value.shape);
  if (const Tensor* tensor = value.tensor()) text += " = " + tensor_text(*tensor);
  if (const auto* external = std::get_if<ExternalData>(&value.data)) {
    text += " = " + external->location + "@" + std::to_string(external->offset);
  }
  return text;
}

std::string op_text(const Graph& graph, const Op& op) {
  std::string text;
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (i > 0) text += ", ";
    if (!op.has_output(i)) {
      text += "_";
      continue;
    }
    const Value& value = graph.value(op.outputs[i]);
    text += value.name + ": " + type_text(value.dtype, value.shape);
  }
  text += " = " + (op.domain.empty() ? "" : op.domain + "::") + op.type + "(";
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (i > 0) text += ", ";
    text += op.has_input(i) ? graph.value(op.inputs[i]).name : "_";
  }
  text += ")";
  for (const auto& [name, attribute] : op.attributes) {
    text += " " + name + "=" + std::visit(AttributeText{}, attribute);
  }
  return text + " # " + op.name;
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::string text = "graph " + graph.name + " opset " + std::to_string(graph.opset) + "\n";
  for (const Value& value : graph.values) {
    if (value.kind != ValueKind::kActivation) text += source_text(value) + "\n";
  }
  for (const Op& op : graph.ops) text += op_text(graph, op) + "\n";
  for (ValueId output : graph.outputs) text += "output " + graph.value(output).name + "\n";
  return text;
}

}  // namespace autopar
