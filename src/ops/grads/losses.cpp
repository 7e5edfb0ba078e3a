// Gradients of the classification losses. What says "this is the sample's class" is a comparison
// with the numbers of the classes, so samples and classes can be split.
#include <numeric>

#include "ops/grads/grads.hpp"

namespace autopar {
namespace {

class LossGrad {
 public:
  explicit LossGrad(const GradContext& context)
      : context_(context),
        to_(context.to),
        whole_(context.in_shape(0)),
        dtype_(wide(to_.dtype(context.in(0)))) {}

  Result<InputGrads> run(bool with_softmax) {
    InputGrads grads(context_.op.inputs.size());
    const bool of_loss = context_.grad(0).valid();
    // Of the second output: the logarithms themselves.
    const ValueId more = with_softmax ? context_.grad(1) : ValueId();
    if (!of_loss && !more.valid()) return grads;
    if (with_softmax) {
      probabilities_ = probabilities();
    }
    ValueId sum;  // of the scores
    if (of_loss) {
      find_samples();
      const ValueId share = share_of_samples();
      if (context_.wants(0)) sum = with_softmax ? of_scores(share) : of_logarithms(share);
      if (context_.wants(2)) grads[2] = of_weights(with_softmax);
    }
    if (more.valid() && context_.wants(0)) {
      const ValueId g = to_.cast(more, dtype_);
      const ValueId all = to_.reduce("ReduceSum", g, {1});
      const ValueId rest = to_.pointwise("Sub", {g, to_.pointwise("Mul", {probabilities_, all})});
      sum = sum.valid() ? to_.pointwise("Add", {sum, rest}) : rest;
    }
    if (sum.valid()) {
      grads[0] = to_.cast(to_.broadcast_to(sum, whole_), to_.dtype(context_.in(0)));
    }
    return grads;
  }

 private:
  static DType wide(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

  ValueId probabilities() {
    if (context_.op.has_output(1)) {
      return to_.pointwise("Exp", {to_.cast(context_.out(1), dtype_)});
    }
    return to_.pointwise("Softmax", {to_.cast(context_.in(0), dtype_)},
                         {{"axis", std::int64_t{1}}});
  }

  // A value per sample with the dimension of the classes, of extent 1.
  ValueId column(ValueId samples) { return to_.unsqueeze(samples, 1); }

  void find_samples() {
    const ValueId labels = context_.in(1);
    const DType type = to_.dtype(labels);
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(whole_[1]));
    std::iota(numbers.begin(), numbers.end(), 0);
    Shape classes(whole_.size(), 1);
    classes[1] = whole_[1];
    const ValueId number = to_.cast(to_.constant(int64_tensor(classes, numbers)), type);
    hit_ = to_.test("Equal", {column(labels), number});
    safe_ = labels;
    if (context_.op.attributes.count("ignore_index") != 0) {
      const auto ignored = static_cast<double>(context_.op.int_attribute("ignore_index", 0));
      counted_ = to_.test("Not", {to_.test("Equal", {labels, to_.scalar(type, ignored)})});
      safe_ = to_.pointwise("Where", {counted_, labels, to_.scalar(type, 0)});
    }
    if (context_.op.has_input(2)) {
      const ValueId table = to_.cast(context_.in(2), dtype_);
      weights_ = masked(to_.add("Gather", {table, safe_}, dtype_, to_.shape(labels)));
    } else if (counted_.valid()) {
      weights_ = to_.cast(counted_, dtype_);
    }
  }

  ValueId masked(ValueId samples) {
    if (!counted_.valid()) return samples;
    return to_.pointwise("Where", {counted_, samples, to_.scalar(dtype_, 0)});
  }

  std::string reduction() const { return context_.op.string_attribute("reduction", "mean"); }

  // dL/d(loss) per unit of a sample's weight: the total weight divides a mean.
  ValueId unit() {
    const ValueId g = to_.cast(context_.grad(0), dtype_);
    if (reduction() != "mean") return g;
    if (!weights_.valid()) {
      return to_.scaled(g, 1 / static_cast<double>(element_count(to_.shape(safe_))));
    }
    return to_.pointwise("Div", {g, total()});
  }

  ValueId total() {
    std::vector<std::size_t> dims(to_.rank(weights_));
    std::iota(dims.begin(), dims.end(), std::size_t{0});
    return to_.reduce("ReduceSum", weights_, dims, false);
  }

  // dL/d(-log p of the sample's class), over the samples' column or a scalar.
  ValueId share_of_samples() {
    unit_ = unit();
    ValueId share = unit_;
    if (weights_.valid()) share = to_.pointwise("Mul", {weights_, share});
    return to_.rank(share) == 0 ? share : column(share);
  }

  ValueId of_scores(ValueId share) {
    const ValueId one = to_.scalar(dtype_, 1);
    const ValueId less = to_.pointwise("Sub", {probabilities_, one});
    return to_.pointwise("Mul", {to_.pointwise("Where", {hit_, less, probabilities_}), share});
  }

  ValueId of_logarithms(ValueId share) {
    const ValueId zero = to_.scalar(dtype_, 0);
    return to_.pointwise("Where", {hit_, to_.pointwise("Neg", {share}), zero});
  }

  // The losses of the class's samples before they are weighed; of a mean, what they are above it.
  ValueId of_weights(bool with_softmax) {
    ValueId log = to_.cast(context_.in(0), dtype_);
    if (with_softmax) {
      log = context_.op.has_output(1)
                ? to_.cast(context_.out(1), dtype_)
                : to_.pointwise("LogSoftmax", {log}, {{"axis", std::int64_t{1}}});
    }
    const ValueId zero = to_.scalar(dtype_, 0);
    const ValueId picked =
        to_.reduce("ReduceSum", to_.pointwise("Where", {hit_, log, zero}), {1}, false);
    ValueId loss = to_.pointwise("Neg", {picked});
    if (reduction() == "mean") {
      loss = to_.pointwise("Sub", {loss, to_.cast(context_.out(0), dtype_)});
    }
    const ValueId part = masked(to_.pointwise("Mul", {loss, unit_}));
    const ValueId placed = to_.pointwise("Where", {hit_, column(part), zero});
    std::vector<std::size_t> samples;
    for (std::size_t d = 0; d < whole_.size(); ++d) {
      if (d != 1) samples.push_back(d);
    }
    const ValueId sum = to_.reduce("ReduceSum", placed, samples, false);
    return to_.cast(sum, to_.dtype(context_.in(2)));
  }

  const GradContext& context_;
  GraphBuilder& to_;
  const Shape whole_;
  const DType dtype_;
  ValueId probabilities_;
  ValueId hit_;      // bool, like the scores
  ValueId counted_;  // bool per sample; invalid: all
  ValueId safe_;     // labels, 0 for ignored ones
  ValueId weights_;  // per sample; invalid: 1
  ValueId unit_;
};

}  // namespace

Result<InputGrads> cross_entropy_grad(const GradContext& context) {
  return LossGrad(context).run(true);
}

Result<InputGrads> likelihood_grad(const GradContext& context) {
  return LossGrad(context).run(false);
}

}  // namespace autopar
