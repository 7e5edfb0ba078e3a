#include "io/import/pool_ceiling.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace autopar {
namespace {

const onnx::AttributeProto* attribute_of(const onnx::NodeProto& node, const std::string& name) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  return nullptr;
}

std::int64_t number_of(const onnx::NodeProto& node, const std::string& name) {
  const auto* attribute = attribute_of(node, name);
  return attribute != nullptr ? attribute->i() : 0;
}

std::vector<std::int64_t> numbers_of(const onnx::NodeProto& node, const std::string& name,
                                     std::size_t count, std::int64_t otherwise) {
  std::vector<std::int64_t> numbers(count, otherwise);
  if (const auto* attribute = attribute_of(node, name)) {
    for (std::size_t i = 0; i < std::min<std::size_t>(count, attribute->ints_size()); ++i) {
      numbers[i] = attribute->ints(static_cast<int>(i));
    }
  }
  return numbers;
}

void erase(onnx::NodeProto& node, const std::string& name) {
  auto& attributes = *node.mutable_attribute();
  for (int i = attributes.size(); i-- > 0;) {
    if (attributes[i].name() == name) attributes.DeleteSubrange(i, 1);
  }
}

}  // namespace

Status state_ceiling(onnx::NodeProto& node, const Shape& image) {
  const std::string& type = node.op_type();
  const bool is_pool = type == "MaxPool" || type == "AveragePool" || type == "LpPool";
  const auto* kernel = attribute_of(node, "kernel_shape");
  if (!is_pool || number_of(node, "ceil_mode") == 0 || kernel == nullptr) return Ok{};
  if (const auto* automatic = attribute_of(node, "auto_pad")) {
    if (automatic->s().rfind("SAME", 0) == 0) return Ok{};  // sizes are those of the strides
  }
  const auto dims = static_cast<std::size_t>(kernel->ints_size());
  if (image.size() != dims + 2) return Ok{};
  const auto strides = numbers_of(node, "strides", dims, 1);
  const auto dilations = numbers_of(node, "dilations", dims, 1);
  const auto pads = numbers_of(node, "pads", 2 * dims, 0);
  auto stated = pads;
  bool drops = false, keeps = false;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t span = (kernel->ints(static_cast<int>(d)) - 1) * dilations[d];
    const std::int64_t rows = image[d + 2] + pads[d];
    const std::int64_t room = rows + pads[d + dims] - span - 1;
    if (strides[d] < 1 || room < 0) return Ok{};  // for the inference to refuse
    if (room % strides[d] == 0) continue;
    const std::int64_t last = (room / strides[d] + 1) * strides[d];
    if (last >= rows) {
      drops = true;
    } else {
      keeps = true;
      stated[d + dims] = last + span + 1 - rows;
    }
  }
  if (!drops) return Ok{};
  if (keeps && number_of(node, "count_include_pad") != 0) {
    return input_error(
        "with ceil_mode and count_include_pad its last window begins in the padding in one "
        "dimension and not in another, which is not supported before opset 22; export the model "
        "with opset 22");
  }
  erase(node, "ceil_mode");
  if (!keeps) return Ok{};
  erase(node, "pads");
  auto* attribute = node.add_attribute();
  attribute->set_name("pads");
  attribute->set_type(onnx::AttributeProto::INTS);
  for (const std::int64_t pad : stated) attribute->add_ints(pad);
  return Ok{};
}

}  // namespace autopar
