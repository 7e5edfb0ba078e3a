#include <onnx/defs/schema.h>

#include "autopar/import.hpp"

namespace autopar {

bool op_takes(const Op& op, std::int64_t opset, DType dtype) {
  if (!op.domain.empty()) return true;
  const onnx::OpSchema* schema =
      onnx::OpSchemaRegistry::Schema(op.type, static_cast<int>(opset), onnx::ONNX_DOMAIN);
  if (schema == nullptr) return true;
  const std::string wanted = std::string("tensor(") + name_of(dtype) + ")";
  bool floats = false;
  for (const auto& input : schema->inputs()) {
    bool single = false, found = false;
    for (const std::string* type : input.GetTypes()) {
      single = single || *type == "tensor(float)";
      found = found || *type == wanted;
    }
    if (found) return true;
    floats = floats || single;
  }
  return !floats;
}

}  // namespace autopar
