// Element by element, with broadcasting: arithmetic, comparison, logic, casts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "io/import/arrays.hpp"
#include "io/import/evaluate.hpp"

namespace autopar {
namespace {

using Unary = double (*)(double);
using DoubleBinary = double (*)(double, double);
using IntBinary = std::optional<std::int64_t> (*)(std::int64_t, std::int64_t);
using Comparison = bool (*)(double, double);
using IntComparison = bool (*)(std::int64_t, std::int64_t);

// As numpy and ONNX Runtime: halves go to the even neighbour.
double round_even(double x) { return std::nearbyint(x); }
double sign(double x) { return x > 0 ? 1 : (x < 0 ? -1 : x); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double relu(double x) { return x > 0 || std::isnan(x) ? x : 0; }
double reciprocal(double x) { return 1 / x; }
double negate(double x) { return -x; }

const std::map<std::string, Unary>& unaries() {
  static const std::map<std::string, Unary> kTable = {
      {"Abs", [](double x) { return std::fabs(x); }},
      {"Ceil", [](double x) { return std::ceil(x); }},
      {"Cos", [](double x) { return std::cos(x); }},
      {"Erf", [](double x) { return std::erf(x); }},
      {"Exp", [](double x) { return std::exp(x); }},
      {"Floor", [](double x) { return std::floor(x); }},
      {"Log", [](double x) { return std::log(x); }},
      {"Neg", negate},
      {"Reciprocal", reciprocal},
      {"Relu", relu},
      {"Round", round_even},
      {"Sigmoid", sigmoid},
      {"Sign", sign},
      {"Sin", [](double x) { return std::sin(x); }},
      {"Sqrt", [](double x) { return std::sqrt(x); }},
      {"Tan", [](double x) { return std::tan(x); }},
      {"Tanh", [](double x) { return std::tanh(x); }},
  };
  return kTable;
}

std::optional<std::int64_t> wrapping(unsigned long long x) { return static_cast<std::int64_t>(x); }
bool overflows(std::int64_t a, std::int64_t b) {
  return b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min());
}

std::optional<std::int64_t> int_pow(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0 || exponent > 1024) return std::nullopt;
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  }
  return result;
}

// The result has the sign of the divisor.
std::optional<std::int64_t> int_mod(std::int64_t a, std::int64_t b) {
  if (overflows(a, b)) return std::nullopt;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::optional<std::int64_t> int_fmod(std::int64_t a, std::int64_t b) {
  return overflows(a, b) ? std::nullopt : std::optional<std::int64_t>(a % b);
}

double max_or_nan(double a, double b) { return std::isnan(a) || a > b ? a : b; }
double min_or_nan(double a, double b) { return std::isnan(a) || a < b ? a : b; }

struct Binary {
  DoubleBinary on_doubles;
  IntBinary on_ints;
};

const std::map<std::string, Binary>& binaries() {
  using I = std::int64_t;
  using U = unsigned long long;
  static const std::map<std::string, Binary> kTable = {
      {"Add",
       {[](double a, double b) { return a + b; },
        [](I a, I b) { return wrapping(static_cast<U>(a) + static_cast<U>(b)); }}},
      {"Sub",
       {[](double a, double b) { return a - b; },
        [](I a, I b) { return wrapping(static_cast<U>(a) - static_cast<U>(b)); }}},
      {"Mul",
       {[](double a, double b) { return a * b; },
        [](I a, I b) { return wrapping(static_cast<U>(a) * static_cast<U>(b)); }}},
      {"Div",
       {[](double a, double b) { return a / b; },
        [](I a, I b) { return overflows(a, b) ? std::nullopt : std::optional<I>(a / b); }}},
      {"Mod", {[](double a, double b) { return std::fmod(a, b); }, int_mod}},
      {"Pow", {[](double a, double b) { return std::pow(a, b); }, int_pow}},
      {"Max", {max_or_nan, [](I a, I b) { return std::optional<I>(std::max(a, b)); }}},
      {"Min", {min_or_nan, [](I a, I b) { return std::optional<I>(std::min(a, b)); }}},
      {"And", {nullptr, [](I a, I b) { return std::optional<I>(a & b); }}},
      {"Or", {nullptr, [](I a, I b) { return std::optional<I>(a | b); }}},
      {"Xor", {nullptr, [](I a, I b) { return std::optional<I>(a ^ b); }}},
      {"BitwiseAnd", {nullptr, [](I a, I b) { return std::optional<I>(a & b); }}},
      {"BitwiseOr", {nullptr, [](I a, I b) { return std::optional<I>(a | b); }}},
  };
  return kTable;
}

struct Compare {
  Comparison on_doubles;
  IntComparison on_ints;
};

const std::map<std::string, Compare>& comparisons() {
  using I = std::int64_t;
  static const std::map<std::string, Compare> kTable = {
      {"Equal", {[](double a, double b) { return a == b; }, [](I a, I b) { return a == b; }}},
      {"Less", {[](double a, double b) { return a < b; }, [](I a, I b) { return a < b; }}},
      {"Greater", {[](double a, double b) { return a > b; }, [](I a, I b) { return a > b; }}},
      {"LessOrEqual", {[](double a, double b) { return a <= b; }, [](I a, I b) { return a <= b; }}},
      {"GreaterOrEqual",
       {[](double a, double b) { return a >= b; }, [](I a, I b) { return a >= b; }}},
  };
  return kTable;
}

// Integers that do not fit in 64 signed bits are not computed with.
bool computes_in_int64(DType dtype) { return !is_floating(dtype) && dtype != DType::kUInt64; }

std::optional<Shape> broadcast_shape(const std::vector<const Tensor*>& inputs) {
  Shape shape;
  for (const Tensor* input : inputs) {
    if (!input) return std::nullopt;
    const Shape& other = input->shape;
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    for (std::size_t i = 0; i < other.size(); ++i) {
      std::int64_t& extent = shape[shape.size() - other.size() + i];
      if (extent == 1) extent = other[i];
      if (other[i] != extent && other[i] != 1) return std::nullopt;
    }
  }
  return shape;
}

template <class T>
std::vector<T> spread(const std::vector<T>& values, const Shape& from, const Shape& to) {
  if (from == to) return values;
  const Ints at = positions(to, *broadcast_strides(from, to));
  std::vector<T> result(at.size());
  for (std::size_t i = 0; i < at.size(); ++i) result[i] = values[static_cast<std::size_t>(at[i])];
  return result;
}

Doubles spread_doubles(const Tensor& tensor, const Shape& to) {
  return spread(doubles_of(tensor), tensor.shape, to);
}
Ints spread_ints(const Tensor& tensor, const Shape& to) {
  return spread(int_values(tensor).value_or(Ints{}), tensor.shape, to);
}

std::optional<Tensors> unary(const OpEvaluation& e, Unary function) {
  const Tensor& x = *e.inputs[0];
  if (is_floating(x.dtype)) {
    Doubles values = doubles_of(x);
    for (double& value : values) value = function(value);
    return Tensors{tensor_of(x.dtype, x.shape, values)};
  }
  // Of these only a few take integers; they are exact in double up to 2^53.
  if (!computes_in_int64(x.dtype) ||
      (e.op.type != "Neg" && e.op.type != "Abs" && e.op.type != "Sign" && e.op.type != "Relu")) {
    return std::nullopt;
  }
  Ints values = int_values(x).value_or(Ints{});
  for (std::int64_t& value : values) {
    if (std::abs(static_cast<double>(value)) > 9007199254740992.0) return std::nullopt;
    value = static_cast<std::int64_t>(function(static_cast<double>(value)));
  }
  return Tensors{tensor_of(x.dtype, x.shape, values)};
}

// Variadic ops (Min, Max) fold from the left.
std::optional<Tensors> binary(const OpEvaluation& e, const Binary& function) {
  const auto shape = broadcast_shape(e.inputs);
  if (!shape) return std::nullopt;
  const DType dtype = e.inputs[0]->dtype;
  if (is_floating(dtype)) {
    if (!function.on_doubles) return std::nullopt;
    Doubles result = spread_doubles(*e.inputs[0], *shape);
    for (std::size_t i = 1; i < e.inputs.size(); ++i) {
      const Doubles other = spread_doubles(*e.inputs[i], *shape);
      for (std::size_t k = 0; k < result.size(); ++k) {
        result[k] = function.on_doubles(result[k], other[k]);
      }
    }
    return Tensors{tensor_of(dtype, *shape, result)};
  }
  // fmod: the result has the sign of the dividend.
  const bool is_fmod = e.op.type == "Mod" && e.op.int_attribute("fmod", 0) != 0;
  const IntBinary on_ints = is_fmod ? int_fmod : function.on_ints;
  Ints result = spread_ints(*e.inputs[0], *shape);
  for (std::size_t i = 0; i < e.inputs.size(); ++i) {
    if (!computes_in_int64(e.inputs[i]->dtype)) return std::nullopt;
    if (i == 0) continue;
    const Ints other = spread_ints(*e.inputs[i], *shape);
    for (std::size_t k = 0; k < result.size(); ++k) {
      const auto value = on_ints(result[k], other[k]);
      if (!value) return std::nullopt;
      result[k] = *value;
    }
  }
  return Tensors{tensor_of(dtype, *shape, result)};
}

std::optional<Tensors> compare(const OpEvaluation& e, const Compare& function) {
  const auto shape = broadcast_shape(e.inputs);
  if (!shape || e.inputs.size() != 2) return std::nullopt;
  const DType dtype = e.inputs[0]->dtype;
  Ints result(static_cast<std::size_t>(element_count(*shape)));
  if (is_floating(dtype)) {
    const Doubles a = spread_doubles(*e.inputs[0], *shape);
    const Doubles b = spread_doubles(*e.inputs[1], *shape);
    for (std::size_t k = 0; k < result.size(); ++k) result[k] = function.on_doubles(a[k], b[k]);
  } else if (computes_in_int64(dtype)) {
    const Ints a = spread_ints(*e.inputs[0], *shape);
    const Ints b = spread_ints(*e.inputs[1], *shape);
    for (std::size_t k = 0; k < result.size(); ++k) result[k] = function.on_ints(a[k], b[k]);
  } else {
    return std::nullopt;
  }
  return Tensors{tensor_of(DType::kBool, *shape, result)};
}

std::optional<Tensors> cast(const OpEvaluation& e) {
  const Tensor& x = *e.inputs[0];
  const DType to = e.outputs[0].dtype;
  if (x.dtype == DType::kUInt64 || to == DType::kUInt64) return std::nullopt;
  if (is_floating(to)) return Tensors{tensor_of(to, x.shape, doubles_of(x))};
  if (!is_floating(x.dtype)) {
    return Tensors{tensor_of(to, x.shape, int_values(x).value_or(Ints{}))};
  }
  const Doubles values = doubles_of(x);
  Ints result(values.size());
  // What an out-of-range float becomes is up to the runtime.
  const double top = std::ldexp(1, static_cast<int>(8 * size_of(to)) - 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (to == DType::kBool) {
      result[i] = values[i] != 0;
    } else if (values[i] >= -top && values[i] < top) {
      result[i] = static_cast<std::int64_t>(values[i]);
    } else {
      return std::nullopt;
    }
  }
  return Tensors{tensor_of(to, x.shape, result)};
}

std::optional<Tensors> where(const OpEvaluation& e) {
  const auto shape = broadcast_shape(e.inputs);
  if (!shape || e.inputs.size() != 3 || e.inputs[1]->dtype != e.inputs[2]->dtype) {
    return std::nullopt;
  }
  const Ints condition = spread_ints(*e.inputs[0], *shape);
  const auto a = broadcast_strides(e.inputs[1]->shape, *shape);
  const auto b = broadcast_strides(e.inputs[2]->shape, *shape);
  Tensor result = take(*e.inputs[1], *shape, positions(*shape, *a));
  const Tensor other = take(*e.inputs[2], *shape, positions(*shape, *b));
  const auto size = static_cast<std::size_t>(size_of(result.dtype));
  for (std::size_t i = 0; i < condition.size(); ++i) {
    if (!condition[i]) result.bytes.replace(i * size, size, other.bytes, i * size, size);
  }
  return Tensors{std::move(result)};
}

std::optional<Tensors> logical_not(const OpEvaluation& e) {
  Ints values = int_values(*e.inputs[0]).value_or(Ints{});
  for (std::int64_t& value : values) value = value == 0;
  return Tensors{tensor_of(DType::kBool, e.inputs[0]->shape, values)};
}

std::optional<Tensors> classify(const OpEvaluation& e, bool (*test)(double)) {
  const Doubles values = doubles_of(*e.inputs[0]);
  Ints result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) result[i] = test(values[i]);
  return Tensors{tensor_of(DType::kBool, e.inputs[0]->shape, result)};
}

// Clip(x, low, high) = min(max(x, low), high).
std::optional<Tensors> clip(const OpEvaluation& e) {
  Tensor result = *e.inputs[0];
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    if (!e.has_input(i)) continue;
    const std::vector<const Tensor*> pair = {&result, e.inputs[i]};
    auto next = binary({e.op, pair, e.outputs}, binaries().at(i == 1 ? "Max" : "Min"));
    if (!next) return std::nullopt;
    result = std::move((*next)[0]);
  }
  return Tensors{std::move(result)};
}

}  // namespace

std::optional<Tensors> evaluate_elementwise(const OpEvaluation& e) {
  const std::string& type = e.op.type;
  if (!e.has_input(0)) return std::nullopt;
  if (auto found = unaries().find(type); found != unaries().end()) return unary(e, found->second);
  if (auto found = binaries().find(type); found != binaries().end()) {
    return binary(e, found->second);
  }
  if (auto found = comparisons().find(type); found != comparisons().end()) {
    return compare(e, found->second);
  }
  if (type == "Sum") return binary(e, binaries().at("Add"));
  if (type == "Cast" || type == "CastLike") return cast(e);
  if (type == "Where") return where(e);
  if (type == "Not") return logical_not(e);
  if (type == "Clip") return clip(e);
  if (type == "IsNaN") return classify(e, [](double x) { return std::isnan(x); });
  return std::nullopt;
}

}  // namespace autopar
