// As MatMul where the operands lie as it reads them, as Gemm on two dimensions where nothing is
// shared by all three tensors (it reads either operand across), else as MatMul of transposed
// operands. Not as Einsum, which ONNX does not have for bfloat16.
#include "ops/grads/contract.hpp"

#include <algorithm>
#include <numeric>

namespace autopar {
namespace {

bool holds(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// Without the dimensions of extent 1.
Lettered squeezed(GraphBuilder& to, const Lettered& operand) {
  Lettered small;
  Shape shape;
  const Shape whole = to.shape(operand.value);
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (whole[d] == 1) continue;
    shape.push_back(whole[d]);
    small.letters += operand.letters[d];
  }
  small.value = to.reshape(operand.value, shape);
  return small;
}

Lettered transposed(GraphBuilder& to, const Lettered& operand, const std::string& letters) {
  std::vector<std::size_t> perm;
  for (char letter : letters) perm.push_back(operand.letters.find(letter));
  return {to.transpose(operand.value, perm), letters};
}

// Sums over what nobody else has and the result lacks.
Lettered summed(GraphBuilder& to, const Lettered& operand, const std::string& kept) {
  Lettered rest;
  std::vector<std::size_t> axes;
  for (std::size_t d = 0; d < operand.letters.size(); ++d) {
    if (holds(kept, operand.letters[d])) {
      rest.letters += operand.letters[d];
    } else {
      axes.push_back(d);
    }
  }
  rest.value = axes.empty() ? operand.value : to.reduce("ReduceSum", operand.value, axes, false);
  return rest;
}

// The letters of `letters` that fulfil a condition, in their order.
template <class Condition>
std::string chosen(const std::string& letters, const Condition& condition) {
  std::string some;
  for (char letter : letters) {
    if (condition(letter)) some += letter;
  }
  return some;
}

class Pair {
 public:
  Pair(GraphBuilder& to, Lettered left, Lettered right, const std::string& kept)
      : to_(to), left_(std::move(left)), right_(std::move(right)) {
    const auto in_both = [&](char c) {
      return holds(left_.letters, c) && holds(right_.letters, c);
    };
    batch_ = chosen(left_.letters, [&](char c) { return in_both(c) && holds(kept, c); });
    summed_ = chosen(left_.letters, [&](char c) { return in_both(c) && !holds(kept, c); });
    rows_ = chosen(left_.letters, [&](char c) { return !holds(right_.letters, c); });
    columns_ = chosen(right_.letters, [&](char c) { return !holds(left_.letters, c); });
    for (const Lettered* operand : {&left_, &right_}) {
      const Shape shape = to.shape(operand->value);
      for (std::size_t d = 0; d < shape.size(); ++d) extents_[operand->letters[d]] = shape[d];
    }
  }

  Lettered run() {
    if (summed_.empty()) return product();
    const bool as_they_lie =
        summed_.size() == 1 && columns_.size() == 1 && left_.letters == batch_ + rows_ + summed_ &&
        right_.letters == batch_ + summed_ + columns_ && (batch_.empty() || rows_.size() == 1);
    if (as_they_lie) {
      return {to_.matmul(left_.value, right_.value), batch_ + rows_ + columns_};
    }
    return batch_.empty() ? flat() : batched();
  }

 private:
  std::int64_t extent(const std::string& letters) const {
    std::int64_t product = 1;
    for (char letter : letters) product *= extents_.at(letter);
    return product;
  }
  Shape shape_of(const std::string& letters) const {
    Shape shape;
    for (char letter : letters) shape.push_back(extents_.at(letter));
    return shape;
  }

  // Nothing is summed: elementwise, with dimensions of extent 1 for what an operand lacks.
  Lettered product() {
    const std::string all = batch_ + rows_ + columns_;
    const auto spread = [&](const Lettered& operand) {
      const std::string order = chosen(all, [&](char c) { return holds(operand.letters, c); });
      Shape shape;
      for (char letter : all) shape.push_back(holds(order, letter) ? extents_.at(letter) : 1);
      return to_.reshape(transposed(to_, operand, order).value, shape);
    };
    return {to_.pointwise("Mul", {spread(left_), spread(right_)}), all};
  }

  // Two dimensions each: (rows, summed) and (summed, columns), or across.
  Lettered flat() {
    // The order of what is summed is that of either operand.
    std::string order = summed_;
    const std::string of_right = chosen(right_.letters, [&](char c) { return holds(summed_, c); });
    const auto lies = [](const Lettered& operand, const std::string& a, const std::string& b) {
      return operand.letters == a + b || operand.letters == b + a;
    };
    if (!lies(left_, rows_, summed_) && lies(right_, columns_, of_right)) order = of_right;
    const Lettered left = lies(left_, rows_, order) ? left_ : transposed(to_, left_, rows_ + order);
    const Lettered right =
        lies(right_, columns_, order) ? right_ : transposed(to_, right_, order + columns_);
    const bool left_across = left.letters != rows_ + order;
    const bool right_across = right.letters != order + columns_;
    const std::int64_t m = extent(rows_), k = extent(order), n = extent(columns_);
    const ValueId a = to_.reshape(left.value, left_across ? Shape{k, m} : Shape{m, k});
    const ValueId b = to_.reshape(right.value, right_across ? Shape{n, k} : Shape{k, n});
    ValueId gemm;
    if (!left_across && !right_across) {
      gemm = to_.matmul(a, b);
    } else {
      gemm =
          to_.add("Gemm", {a, b}, to_.dtype(a), {m, n},
                  {{"transA", std::int64_t{left_across}}, {"transB", std::int64_t{right_across}}});
    }
    return {to_.reshape(gemm, shape_of(rows_ + columns_)), rows_ + columns_};
  }

  Lettered batched() {
    const auto arranged = [&](const Lettered& operand, const std::string& a, const std::string& b) {
      const Lettered ordered = transposed(to_, operand, batch_ + a + b);
      Shape shape = shape_of(batch_);
      shape.push_back(extent(a));
      shape.push_back(extent(b));
      return to_.reshape(ordered.value, shape);
    };
    const ValueId product =
        to_.matmul(arranged(left_, rows_, summed_), arranged(right_, summed_, columns_));
    const std::string letters = batch_ + rows_ + columns_;
    return {to_.reshape(product, shape_of(letters)), letters};
  }

  GraphBuilder& to_;
  Lettered left_, right_;
  std::string batch_, summed_, rows_, columns_;
  std::map<char, std::int64_t> extents_;
};

}  // namespace

ValueId contract(GraphBuilder& to, std::vector<Lettered> operands, const std::string& letters,
                 const std::map<char, std::int64_t>& extents, Shape target) {
  std::vector<Lettered> tensors;
  std::vector<ValueId> scalars;
  for (const Lettered& operand : operands) {
    Lettered small = squeezed(to, operand);
    if (small.letters.empty()) {
      scalars.push_back(small.value);
    } else {
      tensors.push_back(std::move(small));
    }
  }
  std::string kept;
  Shape placed(target.size(), 1);
  const auto somewhere = [&](char letter) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const Lettered& tensor) { return holds(tensor.letters, letter); });
  };
  for (std::size_t d = 0; d < letters.size(); ++d) {
    if (target[d] == 1 || !somewhere(letters[d])) continue;
    kept += letters[d];
    placed[d] = target[d];
  }
  double repeated = 1;  // letters that are summed over and that nothing depends on
  for (const auto& [letter, extent] : extents) {
    const std::size_t at = letters.find(letter);
    const bool stays = at != std::string::npos && target[at] != 1;
    if (!stays && !somewhere(letter)) repeated *= static_cast<double>(extent);
  }
  Lettered product;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // What this operand, or the product so far, is still needed for.
    std::string later = kept;
    for (std::size_t j = i + 1; j < tensors.size(); ++j) later += tensors[j].letters;
    const std::string before = product.value.valid() ? product.letters : std::string();
    const Lettered own = summed(to, tensors[i], later + before);
    if (product.value.valid()) {
      product = Pair(to, summed(to, product, later + own.letters), own, later).run();
    } else {
      product = own;
    }
  }
  ValueId result;
  if (product.value.valid()) {
    result = transposed(to, summed(to, product, kept), kept).value;
  }
  for (ValueId scalar : scalars) {
    result = result.valid() ? to.pointwise("Mul", {result, scalar}) : scalar;
  }
  result = to.scaled(result, repeated);
  return to.broadcast_to(to.reshape(result, placed), target);
}

}  // namespace autopar
