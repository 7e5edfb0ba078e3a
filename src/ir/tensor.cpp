#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "autopar/ir.hpp"

namespace autopar {

static_assert(std::endian::native == std::endian::little, "tensor data is little-endian");

namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  Bytes size;
  bool floating;
};

constexpr std::array<DTypeRow, 13> kDTypes = {{
    {DType::kFloat32, "float32", 4, true},
    {DType::kFloat16, "float16", 2, true},
    {DType::kBFloat16, "bfloat16", 2, true},
    {DType::kFloat64, "float64", 8, true},
    {DType::kInt8, "int8", 1, false},
    {DType::kUInt8, "uint8", 1, false},
    {DType::kInt16, "int16", 2, false},
    {DType::kUInt16, "uint16", 2, false},
    {DType::kInt32, "int32", 4, false},
    {DType::kUInt32, "uint32", 4, false},
    {DType::kInt64, "int64", 8, false},
    {DType::kUInt64, "uint64", 8, false},
    {DType::kBool, "bool", 1, false},
}};

// kDTypes is in the order of the enum.
const DTypeRow& row_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

template <class T>
std::string bytes_of(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
std::vector<std::int64_t> widen(const std::string& bytes) {
  std::vector<std::int64_t> values(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<std::int64_t>(element);
  }
  return values;
}

// The nearest integer that the type holds; not-a-number becomes 0.
template <class T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  // The double of a 64-bit maximum is one above it, hence >=.
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(value);
}

// The number that the bits of a 16-bit IEEE-like format say.
double decode_16_bit(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Bits of a 16-bit IEEE-like format, rounded once from the double to nearest, ties to even.
std::uint16_t encode_16_bit(double value, int exponent_bits, int mantissa_bits) {
  const std::uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  const std::uint32_t infinity = ((1u << exponent_bits) - 1u) << mantissa_bits;
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(sign | infinity | (1u << (mantissa_bits - 1)));
  }
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
  if (exponent > bias) return static_cast<std::uint16_t>(sign | infinity);
  const double scaled = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  // The leading bit of a normal number's mantissa adds the last 1 to the exponent field.
  const std::uint32_t bits = static_cast<std::uint32_t>(scaled) +
                             (static_cast<std::uint32_t>(exponent + bias - 1) << mantissa_bits);
  return static_cast<std::uint16_t>(sign | std::min(bits, infinity));
}

}  // namespace

Bytes size_of(DType dtype) { return row_of(dtype).size; }
const char* name_of(DType dtype) { return row_of(dtype).name; }
bool is_floating(DType dtype) { return row_of(dtype).floating; }

std::optional<DType> parse_dtype(const std::string& name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  bool huge = false;
  for (std::int64_t extent : shape) {
    if (extent == 0) return 0;
    huge = huge || __builtin_mul_overflow(count, extent, &count) || count > kMaxElements;
  }
  return huge ? kMaxElements : count;
}

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string type_text(DType dtype, const Shape& shape) { return name_of(dtype) + to_text(shape); }

Tensor int64_tensor(const Shape& shape, const std::vector<std::int64_t>& values) {
  AUTOPAR_CHECK(
      element_count(shape) == static_cast<std::int64_t>(values.size()),
      "int64_tensor: " + std::to_string(values.size()) + " values for the shape " + to_text(shape));
  Tensor tensor{DType::kInt64, shape, std::string(values.size() * sizeof(std::int64_t), '\0')};
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

Tensor scalar_tensor(DType dtype, double value) {
  Tensor tensor{dtype, {}, {}};
  switch (dtype) {
    case DType::kFloat32:
      tensor.bytes = bytes_of(static_cast<float>(value));
      break;
    case DType::kFloat16:
      tensor.bytes = bytes_of(encode_16_bit(value, 5, 10));
      break;
    case DType::kBFloat16:
      tensor.bytes = bytes_of(encode_16_bit(value, 8, 7));
      break;
    case DType::kFloat64:
      tensor.bytes = bytes_of(value);
      break;
    case DType::kInt8:
      tensor.bytes = bytes_of(saturate<std::int8_t>(value));
      break;
    case DType::kUInt8:
      tensor.bytes = bytes_of(saturate<std::uint8_t>(value));
      break;
    case DType::kInt16:
      tensor.bytes = bytes_of(saturate<std::int16_t>(value));
      break;
    case DType::kUInt16:
      tensor.bytes = bytes_of(saturate<std::uint16_t>(value));
      break;
    case DType::kInt32:
      tensor.bytes = bytes_of(saturate<std::int32_t>(value));
      break;
    case DType::kUInt32:
      tensor.bytes = bytes_of(saturate<std::uint32_t>(value));
      break;
    case DType::kInt64:
      tensor.bytes = bytes_of(saturate<std::int64_t>(value));
      break;
    case DType::kUInt64:
      tensor.bytes = bytes_of(saturate<std::uint64_t>(value));
      break;
    case DType::kBool:
      tensor.bytes = bytes_of(static_cast<std::uint8_t>(value != 0));
      break;
  }
  return tensor;
}

std::optional<std::vector<double>> float_values(const Tensor& tensor) {
  if (!is_floating(tensor.dtype)) return std::nullopt;
  const std::size_t size = static_cast<std::size_t>(size_of(tensor.dtype));
  std::vector<double> values(tensor.bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const char* at = tensor.bytes.data() + i * size;
    if (tensor.dtype == DType::kFloat64) {
      std::memcpy(&values[i], at, sizeof(double));
    } else if (tensor.dtype == DType::kFloat32) {
      float number = 0;
      std::memcpy(&number, at, sizeof number);
      values[i] = static_cast<double>(number);
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof bits);
      values[i] =
          tensor.dtype == DType::kFloat16 ? decode_16_bit(bits, 5, 10) : decode_16_bit(bits, 8, 7);
    }
  }
  return values;
}

std::optional<std::vector<std::int64_t>> int_values(const Tensor& tensor) {
  if (static_cast<Bytes>(tensor.bytes.size()) !=
      element_count(tensor.shape) * size_of(tensor.dtype)) {
    return std::nullopt;
  }
  switch (tensor.dtype) {
    case DType::kInt8:
      return widen<std::int8_t>(tensor.bytes);
    case DType::kUInt8:
    case DType::kBool:
      return widen<std::uint8_t>(tensor.bytes);
    case DType::kInt16:
      return widen<std::int16_t>(tensor.bytes);
    case DType::kUInt16:
      return widen<std::uint16_t>(tensor.bytes);
    case DType::kInt32:
      return widen<std::int32_t>(tensor.bytes);
    case DType::kUInt32:
      return widen<std::uint32_t>(tensor.bytes);
    case DType::kInt64:
      return widen<std::int64_t>(tensor.bytes);
    case DType::kUInt64:
      return widen<std::uint64_t>(tensor.bytes);
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat64:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace autopar
