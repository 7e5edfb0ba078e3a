#include "exec/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "ir/half.hpp"

namespace autopar {

namespace {

// How one dtype is stored and in which type it is accumulated.
template <class T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum load(T value) { return value; }
  static T store(Sum value) { return value; }
};
struct Float16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static float load(std::uint16_t value) { return float_of_float16(value); }
  static std::uint16_t store(float value) { return float16_of_float(value); }
};
struct BFloat16 {
  using Stored = std::uint16_t;
  using Sum = float;
  static float load(std::uint16_t value) { return float_of_bfloat16(value); }
  static std::uint16_t store(float value) { return bfloat16_of_float(value); }
};
struct Bool {
  using Stored = std::uint8_t;
  using Sum = std::uint8_t;
  static std::uint8_t load(std::uint8_t value) { return value != 0 ? 1 : 0; }
  static std::uint8_t store(std::uint8_t value) { return value; }
};

// Integers go through uint64, where overflow is defined, and are cut back to their width.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  }
}
template <class T>
T multiply(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a * b;
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  }
}
template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return a < b ? b : a;
}
template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
  }
  return b < a ? b : a;
}
template <class T>
T divide(T a, std::size_t n) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / static_cast<T>(n);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(a) / static_cast<std::int64_t>(n));
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(a) / n);
  }
}

// Blocks that stay in the first-level cache while the inputs are added one after the other.
constexpr std::size_t kBlock = 512;

template <class Type, class Combine>
void reduce_with(Combine combine, bool average, const std::vector<const void*>& inputs,
                 std::size_t count, void* out) {
  using Stored = typename Type::Stored;
  typename Type::Sum sums[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    const Stored* first = static_cast<const Stored*>(inputs[0]) + begin;
    for (std::size_t i = 0; i < size; ++i) sums[i] = Type::load(first[i]);
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      const Stored* next = static_cast<const Stored*>(inputs[k]) + begin;
      for (std::size_t i = 0; i < size; ++i) sums[i] = combine(sums[i], Type::load(next[i]));
    }
    if (average) {
      for (std::size_t i = 0; i < size; ++i) sums[i] = divide(sums[i], inputs.size());
    }
    Stored* target = static_cast<Stored*>(out) + begin;
    for (std::size_t i = 0; i < size; ++i) target[i] = Type::store(sums[i]);
  }
}

template <class Type>
void reduce_type(ReduceOp op, const std::vector<const void*>& inputs, std::size_t count,
                 void* out) {
  using Sum = typename Type::Sum;
  switch (op) {
    case ReduceOp::kSum:
      return reduce_with<Type>(add<Sum>, false, inputs, count, out);
    case ReduceOp::kAvg:
      return reduce_with<Type>(add<Sum>, true, inputs, count, out);
    case ReduceOp::kMax:
      return reduce_with<Type>(larger<Sum>, false, inputs, count, out);
    case ReduceOp::kMin:
      return reduce_with<Type>(smaller<Sum>, false, inputs, count, out);
    case ReduceOp::kProd:
      return reduce_with<Type>(multiply<Sum>, false, inputs, count, out);
  }
}

}  // namespace

std::optional<ReduceOp> parse_reduce_op(const std::string& text) {
  if (text == "sum") return ReduceOp::kSum;
  if (text == "max") return ReduceOp::kMax;
  if (text == "min") return ReduceOp::kMin;
  if (text == "prod") return ReduceOp::kProd;
  if (text == "avg") return ReduceOp::kAvg;
  return std::nullopt;
}

void reduce(ReduceOp op, DType dtype, const std::vector<const void*>& inputs, std::size_t count,
            void* out) {
  switch (dtype) {
    case DType::kFloat32:
      return reduce_type<Plain<float>>(op, inputs, count, out);
    case DType::kFloat16:
      return reduce_type<Float16>(op, inputs, count, out);
    case DType::kBFloat16:
      return reduce_type<BFloat16>(op, inputs, count, out);
    case DType::kFloat64:
      return reduce_type<Plain<double>>(op, inputs, count, out);
    case DType::kInt8:
      return reduce_type<Plain<std::int8_t>>(op, inputs, count, out);
    case DType::kUInt8:
      return reduce_type<Plain<std::uint8_t>>(op, inputs, count, out);
    case DType::kInt16:
      return reduce_type<Plain<std::int16_t>>(op, inputs, count, out);
    case DType::kUInt16:
      return reduce_type<Plain<std::uint16_t>>(op, inputs, count, out);
    case DType::kInt32:
      return reduce_type<Plain<std::int32_t>>(op, inputs, count, out);
    case DType::kUInt32:
      return reduce_type<Plain<std::uint32_t>>(op, inputs, count, out);
    case DType::kInt64:
      return reduce_type<Plain<std::int64_t>>(op, inputs, count, out);
    case DType::kUInt64:
      return reduce_type<Plain<std::uint64_t>>(op, inputs, count, out);
    case DType::kBool:
      // On 0 and 1 "or" is max and "and" is min.
      return reduce_type<Bool>(
          op == ReduceOp::kProd || op == ReduceOp::kMin ? ReduceOp::kMin : ReduceOp::kMax, inputs,
          count, out);
  }
}

}  // namespace autopar
