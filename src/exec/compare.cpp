#include "exec/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <type_traits>

#include "ir/half.hpp"

namespace autopar {

namespace {

template <class T>
T plain(const void* data, std::size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T), sizeof(T));
  return value;
}
float float16(const void* data, std::size_t i) {
  return float_of_float16(plain<std::uint16_t>(data, i));
}
float bfloat16(const void* data, std::size_t i) {
  return float_of_bfloat16(plain<std::uint16_t>(data, i));
}

// Calls `use` with a function that reads element i of a buffer of this type.
template <class Use>
auto with_reader(DType dtype, Use use) {
  switch (dtype) {
    case DType::kFloat32:
      return use(plain<float>);
    case DType::kFloat64:
      return use(plain<double>);
    case DType::kFloat16:
      return use(float16);
    case DType::kBFloat16:
      return use(bfloat16);
    case DType::kInt8:
      return use(plain<std::int8_t>);
    case DType::kInt16:
      return use(plain<std::int16_t>);
    case DType::kInt32:
      return use(plain<std::int32_t>);
    case DType::kInt64:
      return use(plain<std::int64_t>);
    case DType::kUInt16:
      return use(plain<std::uint16_t>);
    case DType::kUInt32:
      return use(plain<std::uint32_t>);
    case DType::kUInt64:
      return use(plain<std::uint64_t>);
    case DType::kUInt8:
    case DType::kBool:
      break;
  }
  return use(plain<std::uint8_t>);
}

template <class T>
std::string describe(std::size_t i, T found, T expected) {
  std::ostringstream text;
  text.precision(9);
  text << "element " << i << " of the slice is " << +found << ", expected " << +expected;
  return text.str();
}

template <class T>
void compare_element(std::size_t i, T found, T expected, double allowed, double floor,
                     Difference& result) {
  double absolute = 0;
  bool agrees = true;
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(found) && std::isnan(expected)) {
      ++result.nans;
      return;
    }
    if (std::isfinite(found) && std::isfinite(expected)) {
      absolute = std::abs(static_cast<double>(found) - static_cast<double>(expected));
      agrees = absolute <= allowed;
    } else {
      agrees = found == expected;
      absolute = agrees ? 0 : std::numeric_limits<double>::infinity();
    }
  } else {
    agrees = found == expected;
    absolute = std::abs(static_cast<double>(found) - static_cast<double>(expected));
    if (!agrees) absolute = std::max(absolute, 1.0);  // beyond 2^53 a double sees no difference
  }
  if (absolute > 0) {
    const double magnitude = std::abs(static_cast<double>(expected));
    const double scale = std::max(std::isfinite(magnitude) ? magnitude : 0.0, floor);
    result.max_absolute = std::max(result.max_absolute, absolute);
    result.max_relative =
        std::max(result.max_relative,
                 scale > 0 ? absolute / scale : std::numeric_limits<double>::infinity());
  }
  if (agrees) return;
  if (result.disagreeing++ == 0) result.first = describe(i, found, expected);
}

// Calls `use` with the finite magnitudes of every step-th element, or of its change from `before`.
template <class Use>
void for_each_magnitude(const Tensor& tensor, const Tensor* before, std::size_t step, Use use) {
  const auto count = static_cast<std::size_t>(element_count(tensor.shape));
  with_reader(tensor.dtype, [&](auto read) {
    for (std::size_t i = 0; i < count; i += step) {
      const double was = before == nullptr ? 0 : static_cast<double>(read(before->bytes.data(), i));
      const double magnitude = std::abs(static_cast<double>(read(tensor.bytes.data(), i)) - was);
      if (std::isfinite(magnitude)) use(magnitude);
    }
  });
}

}  // namespace

Difference compare(const void* found, const void* expected, std::size_t count,
                   const Criterion& criterion, const void* before,
                   const std::vector<char>* of_rounding) {
  return with_reader(criterion.dtype, [&](auto read) {
    Difference result;
    const double floor = kLeastOfLargest * criterion.largest;
    result.elements = count;
    for (std::size_t i = 0; i < count; ++i) {
      const auto element = static_cast<double>(read(expected, i));
      const double was = before == nullptr ? 0 : static_cast<double>(read(before, i));
      const double difference = element - static_cast<double>(read(found, i));
      double allowed = criterion.allowed(element, was);
      const bool is_rounding = of_rounding != nullptr && (*of_rounding)[i] != 0 &&
                               std::abs(difference) > allowed &&
                               std::abs(difference) <= criterion.allowed_of_rounding();
      if (is_rounding) {
        ++result.of_rounding;
        allowed = criterion.allowed_of_rounding();
      }
      compare_element(i, read(found, i), read(expected, i), allowed, floor, result);
      const double scale = element - was;
      if (std::isfinite(difference)) result.squares += difference * difference;
      if (std::isfinite(scale)) result.scale_squares += scale * scale;
    }
    return result;
  });
}

bool is_excused(const Difference& difference, const Criterion& criterion) {
  if (criterion.jump.empty() || !is_floating(criterion.dtype)) return false;
  const double most = criterion.excused_part;
  return difference.max_absolute <= criterion.excused_of_largest * criterion.scale &&
         static_cast<double>(difference.disagreeing) <=
             criterion.excused_elements * static_cast<double>(difference.elements) &&
         difference.squares <= most * most * difference.scale_squares;
}

std::vector<double> reals_of(const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(element_count(tensor.shape));
  return with_reader(tensor.dtype, [&](auto read) {
    std::vector<double> elements;
    for (std::size_t i = 0; i < count; ++i) {
      elements.push_back(static_cast<double>(read(tensor.bytes.data(), i)));
    }
    return elements;
  });
}

double typical_magnitude(const Tensor& tensor, const Tensor* before) {
  const auto count = static_cast<std::size_t>(element_count(tensor.shape));
  const std::size_t step = std::max<std::size_t>(1, (count + kMedianSamples - 1) / kMedianSamples);
  std::vector<double> magnitudes;
  for_each_magnitude(tensor, before, step, [&](double found) { magnitudes.push_back(found); });
  if (magnitudes.empty()) return 0;
  const auto middle = magnitudes.begin() + static_cast<std::ptrdiff_t>(magnitudes.size() / 2);
  std::nth_element(magnitudes.begin(), middle, magnitudes.end());
  return *middle;
}

double largest_magnitude(const Tensor& tensor, const Tensor* before) {
  double largest = 0;
  for_each_magnitude(tensor, before, 1, [&](double found) { largest = std::max(largest, found); });
  return largest;
}

void merge(Difference& into, const Difference& other) {
  into.max_absolute = std::max(into.max_absolute, other.max_absolute);
  into.max_relative = std::max(into.max_relative, other.max_relative);
  into.elements += other.elements;
  into.disagreeing += other.disagreeing;
  into.nans += other.nans;
  into.of_rounding += other.of_rounding;
  into.squares += other.squares;
  into.scale_squares += other.scale_squares;
  if (into.first.empty()) into.first = other.first;
}

}  // namespace autopar
