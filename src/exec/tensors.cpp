#include "exec/tensors.hpp"

#include <utility>

namespace autopar {

namespace {

constexpr std::pair<DType, ONNXTensorElementDataType> kTypes[] = {
    {DType::kFloat32, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT},
    {DType::kFloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16},
    {DType::kBFloat16, ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16},
    {DType::kFloat64, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE},
    {DType::kInt8, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8},
    {DType::kUInt8, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8},
    {DType::kInt16, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16},
    {DType::kUInt16, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16},
    {DType::kInt32, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32},
    {DType::kUInt32, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32},
    {DType::kInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64},
    {DType::kUInt64, ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64},
    {DType::kBool, ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL},
};

Declared declared(const Ort::AllocatedStringPtr& name, const Ort::TypeInfo& type) {
  Declared result;
  result.name = name.get();
  if (type.GetONNXType() == ONNX_TYPE_TENSOR) {
    const auto tensor = type.GetTensorTypeAndShapeInfo();
    result.type = tensor.GetElementType();
    result.shape = tensor.GetShape();
  }
  return result;
}

}  // namespace

std::optional<DType> dtype_of(ONNXTensorElementDataType type) {
  for (const auto& [dtype, element] : kTypes) {
    if (element == type) return dtype;
  }
  return std::nullopt;
}

ONNXTensorElementDataType element_type_of(DType dtype) {
  for (const auto& [known, element] : kTypes) {
    if (known == dtype) return element;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

Ort::Value view_of(DType dtype, const Shape& shape, const void* data) {
  const auto bytes = static_cast<std::size_t>(element_count(shape) * size_of(dtype));
  return Ort::Value::CreateTensor(Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeCPU),
                                  const_cast<void*>(data), bytes, shape.data(), shape.size(),
                                  element_type_of(dtype));
}

Tensor copy_of(const Ort::Value& value) {
  const auto type = value.GetTensorTypeAndShapeInfo();
  const auto dtype = dtype_of(type.GetElementType());
  AUTOPAR_CHECK(dtype.has_value(), "tensor of an unsupported type");
  Tensor tensor{*dtype, type.GetShape(), {}};
  const auto bytes = static_cast<std::size_t>(element_count(tensor.shape) * size_of(*dtype));
  tensor.bytes.assign(static_cast<const char*>(value.GetTensorRawData()), bytes);
  return tensor;
}

std::vector<Declared> inputs_of(const Ort::Session& session) {
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<Declared> result;
  for (std::size_t i = 0; i < session.GetInputCount(); ++i) {
    result.push_back(
        declared(session.GetInputNameAllocated(i, allocator), session.GetInputTypeInfo(i)));
  }
  return result;
}

std::vector<Declared> outputs_of(const Ort::Session& session) {
  Ort::AllocatorWithDefaultOptions allocator;
  std::vector<Declared> result;
  for (std::size_t i = 0; i < session.GetOutputCount(); ++i) {
    result.push_back(
        declared(session.GetOutputNameAllocated(i, allocator), session.GetOutputTypeInfo(i)));
  }
  return result;
}

}  // namespace autopar
