#include "mindspore/symbolic.hpp"

#include <algorithm>
#include <limits>

namespace autopar {

namespace {

// Of a factor of C = A x B.
enum class Part { kI, kJ, kK, kBatch, kSecondBatch, kOther };

bool has(const TensorFactors& tensor, int factor) {
  return std::any_of(tensor.begin(), tensor.end(), [&](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

// Two operands and their product, at the sizes that earlier cuts left.
class Product {
 public:
  Product(const Rule& rule, const OpShapes& shapes) : rule_(rule), shapes_(shapes) {
    int batches = 0;
    for (std::size_t f = 0; f < rule.factors.size(); ++f) {
      const auto factor = static_cast<int>(f);
      const bool a = has(rule.inputs[0], factor), b = has(rule.inputs[1], factor);
      const bool c = has(rule.outputs[0], factor);
      Part part = Part::kOther;
      if (a && b && c) part = ++batches == 1 ? Part::kBatch : Part::kSecondBatch;
      if (a && !b && c) part = Part::kI;
      if (!a && b && c) part = Part::kJ;
      if (a && b && !c) part = Part::kK;
      if (part == Part::kBatch) batch_ = static_cast<double>(rule.factors[f].size);
      parts_.push_back(part);
      sizes_.push_back(static_cast<double>(rule.factors[f].size));
    }
    has_batch_ = batches > 0;
  }

  Part part(int factor) const { return parts_[static_cast<std::size_t>(factor)]; }
  bool has_batch() const { return has_batch_; }
  double a() const { return elements(rule_.inputs[0], shapes_.inputs[0]); }
  double b() const { return elements(rule_.inputs[1], shapes_.inputs[1]); }
  double c() const { return elements(rule_.outputs[0], shapes_.outputs[0]); }
  double never() const { return (a() + b() + c()) * (a() + b() + c()); }

  void cut(int factor, double parts) {
    sizes_[static_cast<std::size_t>(factor)] /= parts;
    cut_k_ |= part(factor) == Part::kK;
    cut_j_ |= part(factor) == Part::kJ;
    if (part(factor) == Part::kBatch) batch_ /= parts;
  }

  // Of one more cut, `share` = (p - 1) / p.
  double matmul_cost(int factor, double share) const {
    if (has_batch_) return batched_cost(factor, share);
    switch (part(factor)) {
      case Part::kI:
        return 0.1 * b() * share;
      case Part::kJ:
        return cut_k_ ? never() : a() * share;
      case Part::kK:
        return cut_j_ ? never() : c() * share;
      case Part::kBatch:
      case Part::kSecondBatch:
      case Part::kOther:
        return 0;
    }
    return 0;
  }

  double batched_cost(int factor, double share) const {
    const double least = 0.15 * std::min({a(), b(), c()}) * share;
    const double r = batch_ <= 1 ? 32 : std::max(32 / batch_ - 1, 0.0);
    switch (part(factor)) {
      case Part::kBatch:
        return r * least;
      case Part::kSecondBatch:
        return std::max(r * least - 1, 0.0);
      case Part::kI:
        return b() * share;
      case Part::kJ:
        return a() * share;
      case Part::kK:
        return c() * share;
      case Part::kOther:
        return 0;
    }
    return 0;
  }

  double uncut_cost() const {
    const double least =
        has_batch_ ? 0.15 * std::min({a(), b(), c()}) / 2 : std::min({0.1 * b(), a(), c()}) / 2;
    return least * least / 25;
  }

  // Where the batch of a convolution is the first dimension of its data.
  double conv_cost(int factor, double share) const {
    const auto& batch = rule_.inputs[0][0];
    const bool is_batch = std::find(batch.begin(), batch.end(), factor) != batch.end();
    switch (part(factor)) {
      case Part::kI:
        return is_batch ? b() * share : never();
      case Part::kJ:
        return a() * share;
      case Part::kK:
        return c() * share;
      case Part::kBatch:
      case Part::kSecondBatch:
        return never();
      case Part::kOther:
        return 0;
    }
    return 0;
  }

 private:
  double elements(const TensorFactors& tensor, const Shape& shape) const {
    double product = 1;
    for (std::size_t d = 0; d < tensor.size(); ++d) {
      if (tensor[d].empty()) product *= static_cast<double>(shape[d]);
      for (int f : tensor[d]) product *= sizes_[static_cast<std::size_t>(f)];
    }
    return product;
  }

  const Rule& rule_;
  const OpShapes shapes_;
  std::vector<Part> parts_;
  std::vector<double> sizes_;
  double batch_ = 1;
  bool has_batch_ = false, cut_j_ = false, cut_k_ = false;
};

int role_on(const Spec& spec, int axis) {  // the dimension, -1: not cut
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    const auto& axes = spec.dims[d];
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return static_cast<int>(d);
  }
  return -1;
}

}  // namespace

Result<OpPrice> SymbolicModel::op_price(const Graph& graph, const Op& op, const Rule& rule,
                                        const Assignment& assignment, const OpSpecs&) {
  OpPrice price;
  const bool conv = op.type == "Conv";
  const bool product_op = op.type == "MatMul" || op.type == "Gemm";
  if ((!product_op && !conv) || !op.domain.empty()) return price;
  Product product(rule, shapes_of(graph, op));
  bool was_cut = false;
  for (std::size_t a = 0; a < assignment.factor_of_axis.size(); ++a) {
    const int factor = assignment.factor_of_axis[a];
    for (std::int64_t prime : prime_factors(mesh().axes[a].size)) {
      // A partial sum that passes through leaves the op as it is.
      if (factor < 0 || product.part(factor) == Part::kOther) {
        if (!conv) price.compute += was_cut ? product.never() : product.uncut_cost();
        continue;
      }
      const auto parts = static_cast<double>(prime);
      const double share = (parts - 1) / parts;
      price.compute += conv ? product.conv_cost(factor, share) : product.matmul_cost(factor, share);
      product.cut(factor, parts);
      was_cut = true;
    }
  }
  return price;
}

double SymbolicModel::reshard_cost(const Shape& shape, const Spec& from, const Spec& to) const {
  auto elements = static_cast<double>(element_count(shape));
  double cost = 0;
  for (int axis = 0; axis < mesh().rank(); ++axis) {
    const bool differ = role_on(from, axis) != role_on(to, axis);
    for (std::int64_t prime : prime_factors(mesh().axes[static_cast<std::size_t>(axis)].size)) {
      if (differ) cost += 16 * elements;
      if (role_on(from, axis) >= 0) elements /= static_cast<double>(prime);
    }
  }
  return cost;
}

ReshardTable SymbolicModel::reshard_prices(const Shape& shape, DType dtype,
                                           const std::vector<Spec>& from,
                                           const std::vector<Spec>& to) {
  auto prices = paths_.reshard_prices(shape, dtype, from, to);
  for (std::size_t i = 0; i < from.size(); ++i) {
    for (std::size_t j = 0; j < to.size(); ++j) {
      Seconds& seconds = prices.seconds[i * to.size() + j];
      if (seconds == std::numeric_limits<double>::infinity()) continue;
      seconds = reshard_cost(shape, from[i], to[j]);
    }
  }
  return prices;
}

std::vector<PricedCollective> SymbolicModel::reshard_steps(const Shape& shape, DType dtype,
                                                           const Spec& from, const Spec& to) {
  auto steps = paths_.reshard_steps(shape, dtype, from, to);
  for (PricedCollective& step : steps) step.seconds = 0;
  if (!steps.empty()) steps.front().seconds = reshard_cost(shape, from, to);
  return steps;
}

}  // namespace autopar
