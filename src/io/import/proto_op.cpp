#include "io/import/proto_op.hpp"

#include <cstring>
#include <utility>

#include "io/import/proto_tensor.hpp"

namespace autopar {
namespace {

Result<Tensor> inline_tensor(onnx::TensorProto& proto, const std::string& where) {
  AUTOPAR_TRY(data, take_tensor(proto, where));
  if (auto* tensor = std::get_if<Tensor>(&data.data)) return std::move(*tensor);
  return input_error(where + ": external data is supported for initializers only");
}

template <class T>
Tensor packed(DType dtype, const Shape& shape, const T* values, std::size_t count) {
  Tensor tensor{dtype, shape, std::string(count * sizeof(T), '\0')};
  if (count > 0) std::memcpy(tensor.bytes.data(), values, tensor.bytes.size());
  return tensor;
}

Result<Attribute> attribute_of(const onnx::AttributeProto& proto) {
  const std::string where = "attribute '" + proto.name() + "'";
  switch (proto.type()) {
    case onnx::AttributeProto::INT:
      return Attribute(std::int64_t{proto.i()});
    case onnx::AttributeProto::FLOAT:
      return Attribute(static_cast<double>(proto.f()));
    case onnx::AttributeProto::STRING:
      return Attribute(proto.s());
    case onnx::AttributeProto::INTS:
      return Attribute(std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end()));
    case onnx::AttributeProto::FLOATS:
      return Attribute(std::vector<double>(proto.floats().begin(), proto.floats().end()));
    case onnx::AttributeProto::STRINGS:
      return Attribute(std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
    case onnx::AttributeProto::TENSOR: {
      onnx::TensorProto copy = proto.t();
      AUTOPAR_TRY(tensor, inline_tensor(copy, where));
      return Attribute(std::move(tensor));
    }
    default:
      return input_error(where + " is of kind " +
                         onnx::AttributeProto::AttributeType_Name(proto.type()) +
                         ", which is not supported");
  }
}

}  // namespace

std::string label(const std::string& name, const onnx::NodeProto& node) {
  return "op '" + name + "' (" + node.op_type() + ")";
}

std::string domain_of(const onnx::NodeProto& node) {
  return node.domain() == "ai.onnx" ? "" : node.domain();
}

std::string name_of_node(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const auto& output : node.output()) {
    if (!output.empty()) return node.op_type() + "_" + output;
  }
  return node.op_type();
}

Result<Op> op_of_node(const onnx::NodeProto& node) {
  Op op;
  op.type = node.op_type();
  op.domain = domain_of(node);
  for (const auto& proto : node.attribute()) {
    AUTOPAR_TRY(attribute, attribute_of(proto));
    op.attributes.emplace(proto.name(), std::move(attribute));
  }
  return op;
}

Result<Tensor> constant_of_node(onnx::NodeProto& node) {
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == "value") return inline_tensor(*attribute.mutable_t(), "its value");
    if (attribute.name() == "value_int") return int64_tensor({}, {attribute.i()});
    if (attribute.name() == "value_ints") {
      const auto& ints = attribute.ints();
      return packed(DType::kInt64, {ints.size()}, ints.data(),
                    static_cast<std::size_t>(ints.size()));
    }
    if (attribute.name() == "value_float") {
      const float value = attribute.f();
      return packed(DType::kFloat32, {}, &value, 1);
    }
    if (attribute.name() == "value_floats") {
      const auto& floats = attribute.floats();
      return packed(DType::kFloat32, {floats.size()}, floats.data(),
                    static_cast<std::size_t>(floats.size()));
    }
  }
  return input_error("its value is of a kind that is not supported (string or sparse)");
}

}  // namespace autopar
