// For tests: numbers as the bytes of a tensor.
#pragma once

#include <string>
#include <vector>

#include "ir/half.hpp"

namespace autopar::testing {

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline std::string encode(DType dtype, const std::vector<double>& values) {
  std::string bytes;
  for (double v : values) {
    switch (dtype) {
      case DType::kFloat32:
        put(bytes, static_cast<float>(v));
        break;
      case DType::kFloat64:
        put(bytes, v);
        break;
      case DType::kFloat16:
        put(bytes, float16_of_float(static_cast<float>(v)));
        break;
      case DType::kBFloat16:
        put(bytes, bfloat16_of_float(static_cast<float>(v)));
        break;
      case DType::kInt8:
      case DType::kUInt8:
        put(bytes, static_cast<std::int8_t>(v));
        break;
      case DType::kInt16:
      case DType::kUInt16:
        put(bytes, static_cast<std::int16_t>(v));
        break;
      case DType::kInt32:
      case DType::kUInt32:
        put(bytes, static_cast<std::int32_t>(v));
        break;
      case DType::kInt64:
      case DType::kUInt64:
        put(bytes, static_cast<std::int64_t>(v));
        break;
      case DType::kBool:
        put(bytes, static_cast<std::uint8_t>(v != 0));
        break;
    }
  }
  return bytes;
}

}  // namespace autopar::testing
