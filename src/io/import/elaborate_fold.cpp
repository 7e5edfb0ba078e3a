// What is known at import, and what becomes of ops on it.
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "io/import/elaborator.hpp"

namespace autopar {
namespace {

// Tables of rotary frequencies and the like; real weights are larger.
constexpr Bytes kMaxTableBytes = 8192;

bool is_one_of(const std::string& type, std::initializer_list<const char*> types) {
  for (const char* candidate : types) {
    if (type == candidate) return true;
  }
  return false;
}

}  // namespace

const Tensor* Elaborator::known(ValueId id) const {
  if (!id.valid()) return nullptr;
  if (const Tensor* tensor = graph_.value(id).tensor()) return tensor;
  const auto found = derived_.find(id);
  return found == derived_.end() ? nullptr : &found->second;
}

// Shape and Size of anything, since all shapes are static.
std::optional<Tensor> Elaborator::shape_of_input(const Op& op) const {
  if (!op.domain.empty() || op.inputs.size() != 1 || !op.inputs[0].valid()) return std::nullopt;
  const Shape& shape = graph_.value(op.inputs[0]).shape;
  if (op.type == "Size") return int64_tensor({}, {element_count(shape)});
  if (op.type != "Shape") return std::nullopt;
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto clamp = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const std::int64_t start = clamp(op.int_attribute("start", 0));
  const std::int64_t end = std::max(start, clamp(op.int_attribute("end", rank)));
  return int64_tensor({end - start}, Shape(shape.begin() + start, shape.begin() + end));
}

bool Elaborator::is_large(const Tensor& tensor) {
  return static_cast<Bytes>(tensor.bytes.size()) > kMaxTableBytes;
}

// Weights stay weights, with one exception: a small table that is multiplied with known numbers
// (rotary frequencies times positions) is itself nothing but known numbers.
Elaborator::Fold Elaborator::fold_kind(const Op& op) const {
  bool weights = false;
  bool beside_numbers = false;
  for (const ValueId id : op.inputs) {
    if (!id.valid()) continue;
    const Tensor* tensor = known(id);
    if (!tensor) return Fold::kNone;
    if (graph_.value(id).kind == ValueKind::kConstant) {
      beside_numbers = beside_numbers || element_count(tensor->shape) > 1;
      continue;
    }
    if (is_large(*tensor)) return Fold::kNone;
    weights = true;
  }
  if (!weights) return Fold::kConstant;
  if (beside_numbers && is_one_of(op.type, {"MatMul", "Mul"})) return Fold::kConstant;
  return is_one_of(op.type,
                   {"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
             ? Fold::kDerived
             : Fold::kNone;
}

std::optional<Tensors> Elaborator::values_of(const Op& op, const std::vector<OutputType>& outputs,
                                             Fold fold) const {
  if (fold == Fold::kNone) return std::nullopt;
  std::vector<const Tensor*> inputs;
  for (const ValueId id : op.inputs) inputs.push_back(known(id));
  return evaluate({op, inputs, outputs},
                  fold == Fold::kDerived ? kMaxTableBytes : options_.fold_limit_bytes);
}

void Elaborator::add_constants(const onnx::NodeProto& node, Tensors tensors, Scope& scope) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = node.output(static_cast<int>(i));
    if (name.empty()) continue;
    Value value;
    value.dtype = tensors[i].dtype;
    value.shape = tensors[i].shape;
    // Some exporters write weights as nodes of type Constant.
    const bool is_weight = node.op_type() == "Constant" && is_floating(value.dtype) &&
                           value.bytes() > options_.fold_limit_bytes;
    value.kind = is_weight ? ValueKind::kParameter : ValueKind::kConstant;
    value.data = std::move(tensors[i]);
    add_value(std::move(value), scope, name);
  }
}

}  // namespace autopar
