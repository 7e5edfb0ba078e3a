#include "io/import/arrays.hpp"

#include <cmath>
#include <cstring>

namespace autopar {
namespace {

template <class T>
T load(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
Doubles widen(const Tensor& tensor) {
  Doubles values(tensor.bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(load<T>(tensor.bytes.data() + i * sizeof(T)));
  }
  return values;
}

double half_to_double(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  double value = 0;
  if (exponent == 31) {
    value = mantissa ? std::nan("") : HUGE_VAL;
  } else {
    value = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  }
  return bits >> 15 ? -value : value;
}

template <class T, class From>
std::string narrow(const std::vector<From>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T element = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
  }
  return bytes;
}

}  // namespace

Doubles doubles_of(const Tensor& tensor) {
  if (tensor.dtype == DType::kFloat32) return widen<float>(tensor);
  if (tensor.dtype == DType::kFloat64) return widen<double>(tensor);
  if (is_floating(tensor.dtype)) {
    Doubles values(tensor.bytes.size() / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto bits = load<std::uint16_t>(tensor.bytes.data() + 2 * i);
      if (tensor.dtype == DType::kFloat16) {
        values[i] = half_to_double(bits);
      } else {
        const std::uint32_t single = std::uint32_t{bits} << 16;
        values[i] = static_cast<double>(load<float>(reinterpret_cast<const char*>(&single)));
      }
    }
    return values;
  }
  if (tensor.dtype == DType::kUInt64) return widen<std::uint64_t>(tensor);
  const auto ints = int_values(tensor).value_or(Ints{});
  return Doubles(ints.begin(), ints.end());
}

Tensor tensor_of(DType dtype, const Shape& shape, const Doubles& values) {
  AUTOPAR_CHECK(is_floating(dtype), "tensor_of: doubles for an integer type");
  Tensor tensor{dtype, shape, {}};
  if (dtype == DType::kFloat32) {
    tensor.bytes = narrow<float>(values);
  } else if (dtype == DType::kFloat64) {
    tensor.bytes = narrow<double>(values);
  } else {
    for (const double value : values) tensor.bytes += scalar_tensor(dtype, value).bytes;
  }
  return tensor;
}

Tensor tensor_of(DType dtype, const Shape& shape, const Ints& values) {
  AUTOPAR_CHECK(!is_floating(dtype), "tensor_of: integers for a floating type");
  Tensor tensor{dtype, shape, {}};
  if (dtype == DType::kBool) {
    tensor.bytes.resize(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) tensor.bytes[i] = values[i] != 0;
    return tensor;
  }
  switch (size_of(dtype)) {
    case 1:
      tensor.bytes = narrow<std::uint8_t>(values);
      break;
    case 2:
      tensor.bytes = narrow<std::uint16_t>(values);
      break;
    case 4:
      tensor.bytes = narrow<std::uint32_t>(values);
      break;
    default:
      tensor.bytes = narrow<std::uint64_t>(values);
  }
  return tensor;
}

Ints strides_of(const Shape& shape) {
  Ints strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::optional<Ints> broadcast_strides(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return std::nullopt;
  const Ints own = strides_of(from);
  Ints strides(to.size(), 0);
  const std::size_t lead = to.size() - from.size();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i] == to[lead + i]) {
      strides[lead + i] = own[i];
    } else if (from[i] != 1) {
      return std::nullopt;
    }
  }
  return strides;
}

Ints positions(const Shape& shape, const Ints& strides, std::int64_t offset) {
  Ints result(static_cast<std::size_t>(element_count(shape)));
  Ints index(shape.size(), 0);
  std::int64_t position = offset;
  for (auto& element : result) {
    element = position;
    for (std::size_t d = shape.size(); d-- > 0;) {
      position += strides[d];
      if (++index[d] < shape[d]) break;
      position -= strides[d] * shape[d];
      index[d] = 0;
    }
  }
  return result;
}

Tensor take(const Tensor& from, const Shape& shape, const Ints& positions) {
  const auto size = static_cast<std::size_t>(size_of(from.dtype));
  Tensor result{from.dtype, shape, std::string(positions.size() * size, '\0')};
  char* out = result.bytes.data();
  for (const std::int64_t position : positions) {
    std::memcpy(out, from.bytes.data() + static_cast<std::size_t>(position) * size, size);
    out += size;
  }
  return result;
}

std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

}  // namespace autopar
