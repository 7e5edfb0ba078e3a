// Reductions, running sums, arg-extrema and small matrix products.
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "io/import/arrays.hpp"
#include "io/import/evaluate.hpp"

namespace autopar {
namespace {

constexpr std::int64_t kMaxProducts = std::int64_t{1} << 24;

struct Fold {
  double start;
  double (*combine)(double, double);
  bool mean = false;
};

const std::map<std::string, Fold>& reductions() {
  static const double kInfinity = std::numeric_limits<double>::infinity();
  static const std::map<std::string, Fold> kTable = {
      {"ReduceSum", {0, [](double a, double b) { return a + b; }}},
      {"ReduceMean", {0, [](double a, double b) { return a + b; }, true}},
      {"ReduceProd", {1, [](double a, double b) { return a * b; }}},
      {"ReduceSumSquare", {0, [](double a, double b) { return a + b * b; }}},
      {"ReduceL1", {0, [](double a, double b) { return a + std::fabs(b); }}},
      {"ReduceMax",
       {-kInfinity, [](double a, double b) { return std::isnan(b) || b > a ? b : a; }}},
      {"ReduceMin", {kInfinity, [](double a, double b) { return std::isnan(b) || b < a ? b : a; }}},
  };
  return kTable;
}

// Which dimensions an op reduces, from the attribute or the operand; nothing on a bad axis.
std::optional<std::vector<bool>> reduced_dims(const OpEvaluation& e, std::size_t rank) {
  Ints axes = e.op.ints_attribute("axes");
  if (e.has_input(1)) axes = int_values(*e.inputs[1]).value_or(Ints{});
  if (axes.empty())
    return std::vector<bool>(rank, e.op.int_attribute("noop_with_empty_axes", 0) == 0);
  std::vector<bool> reduced(rank, false);
  for (const std::int64_t raw : axes) {
    const auto axis = axis_of(raw, rank);
    if (!axis) return std::nullopt;
    reduced[*axis] = true;
  }
  return reduced;
}

Tensor narrowed(DType dtype, const Shape& shape, const Doubles& values) {
  if (is_floating(dtype)) return tensor_of(dtype, shape, values);
  return tensor_of(dtype, shape, Ints(values.begin(), values.end()));
}

bool exact(const Doubles& values) {
  for (const double value : values) {
    if (!(std::fabs(value) <= 9007199254740992.0)) return false;
  }
  return true;
}

std::optional<Tensors> reduce(const OpEvaluation& e, const Fold& reduction) {
  const Tensor& x = *e.inputs[0];
  const auto reduced = reduced_dims(e, x.shape.size());
  if (!reduced || !e.outputs[0].shape) return std::nullopt;
  Shape kept = x.shape;
  std::int64_t count = 1;
  for (std::size_t d = 0; d < kept.size(); ++d) {
    if ((*reduced)[d]) count *= kept[d], kept[d] = 1;
  }
  if (element_count(kept) != element_count(*e.outputs[0].shape)) return std::nullopt;
  const auto strides = broadcast_strides(kept, x.shape);
  const Doubles values = doubles_of(x);
  const Ints to = positions(x.shape, *strides);
  Doubles result(static_cast<std::size_t>(element_count(kept)), reduction.start);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double& target = result[static_cast<std::size_t>(to[i])];
    target = reduction.combine(target, values[i]);
  }
  if (reduction.mean) {
    for (double& value : result) value /= static_cast<double>(count);
    if (!is_floating(x.dtype)) return std::nullopt;
  }
  if (!is_floating(x.dtype) && (!exact(values) || !exact(result))) return std::nullopt;
  return Tensors{narrowed(x.dtype, *e.outputs[0].shape, result)};
}

std::optional<Tensors> cum_sum(const OpEvaluation& e) {
  if (!e.has_input(1)) return std::nullopt;
  const Tensor& x = *e.inputs[0];
  const auto raw = int_values(*e.inputs[1]);
  if (!raw || raw->size() != 1) return std::nullopt;
  const auto axis = axis_of((*raw)[0], x.shape.size());
  if (!axis) return std::nullopt;
  const bool exclusive = e.op.int_attribute("exclusive", 0) != 0;
  const bool reverse = e.op.int_attribute("reverse", 0) != 0;
  Doubles values = doubles_of(x);
  const Ints strides = strides_of(x.shape);
  const std::int64_t extent = x.shape[*axis];
  Shape starts_shape = x.shape;
  starts_shape[*axis] = 1;
  for (const std::int64_t start : extent == 0 ? Ints{} : positions(starts_shape, strides)) {
    double sum = 0;
    for (std::int64_t i = 0; i < extent; ++i) {
      const std::int64_t at = start + (reverse ? extent - 1 - i : i) * strides[*axis];
      double& value = values[static_cast<std::size_t>(at)];
      const double before = sum;
      sum += value;
      value = exclusive ? before : sum;
    }
  }
  if (!is_floating(x.dtype) && !exact(values)) return std::nullopt;
  return Tensors{narrowed(x.dtype, x.shape, values)};
}

// [..., m, k] x [..., k, n] with broadcast leading dimensions; vectors stay an op.
std::optional<Tensors> mat_mul(const OpEvaluation& e) {
  if (!e.has_input(1) || !e.outputs[0].shape) return std::nullopt;
  const Tensor& a = *e.inputs[0];
  const Tensor& b = *e.inputs[1];
  const Shape& shape = *e.outputs[0].shape;
  if (a.shape.size() < 2 || b.shape.size() < 2 || !is_floating(a.dtype)) return std::nullopt;
  const std::int64_t m = a.shape[a.shape.size() - 2];
  const std::int64_t k = a.shape.back();
  const std::int64_t n = b.shape.back();
  if (shape.size() < 2 || shape[shape.size() - 2] != m || shape.back() != n ||
      b.shape[b.shape.size() - 2] != k || k == 0 || element_count(shape) > kMaxProducts / k) {
    return std::nullopt;
  }
  const Shape batch(shape.begin(), shape.end() - 2);
  const auto starts = [&](const Tensor& t) -> std::optional<Ints> {
    const Shape own(t.shape.begin(), t.shape.end() - 2);
    auto strides = broadcast_strides(own, batch);
    if (!strides) return std::nullopt;
    const std::int64_t block = t.shape[t.shape.size() - 2] * t.shape.back();
    for (std::int64_t& stride : *strides) stride *= block;
    return positions(batch, *strides);
  };
  const auto a_starts = starts(a);
  const auto b_starts = starts(b);
  if (!a_starts || !b_starts) return std::nullopt;
  const Doubles left = doubles_of(a);
  const Doubles right = doubles_of(b);
  Doubles result;
  result.reserve(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < a_starts->size(); ++i) {
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          sum += left[static_cast<std::size_t>((*a_starts)[i] + row * k + j)] *
                 right[static_cast<std::size_t>((*b_starts)[i] + j * n + column)];
        }
        result.push_back(sum);
      }
    }
  }
  return Tensors{tensor_of(a.dtype, shape, result)};
}

}  // namespace

std::optional<Tensors> evaluate_reduction(const OpEvaluation& e) {
  if (!e.has_input(0) || e.inputs[0]->dtype == DType::kUInt64) return std::nullopt;
  if (auto found = reductions().find(e.op.type); found != reductions().end()) {
    return reduce(e, found->second);
  }
  if (e.op.type == "CumSum") return cum_sum(e);
  if (e.op.type == "MatMul") return mat_mul(e);
  return std::nullopt;
}

}  // namespace autopar
