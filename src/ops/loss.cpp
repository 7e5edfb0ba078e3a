// Classification losses. The batch may be split, and so may the classes: then no rank ever has all
// scores of a sample.
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/index.hpp"
#include "ops/softmax.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

enum class LossReduction { kNone, kSum, kMean };

LossReduction reduction_of(const Op& op) {
  const std::string text = op.string_attribute("reduction", "mean");
  if (text == "none") return LossReduction::kNone;
  return text == "sum" ? LossReduction::kSum : LossReduction::kMean;
}

// scores [n, c, s..], labels [n, s..], weights [c] -> loss, log of the probabilities
RuleText loss_rule(const OpView& view) {
  const std::size_t rank = view.in(0).size();
  if (rank < 2 || view.in(1).size() + 1 != rank) return std::nullopt;
  const bool kept = reduction_of(view.op) == LossReduction::kNone;
  std::vector<std::string> samples = {"n"};
  for (std::size_t d = 2; d < rank; ++d) samples.push_back("s" + std::to_string(d - 2));
  std::vector<std::string> scores = samples;
  for (std::string& word : samples) word += kept ? "" : "+";
  scores.insert(scores.begin() + 1, "c~");
  // Marks need to be said once.
  return join(scores) + ", " + join(samples) + ", c -> " + (kept ? join(samples) : "") + ", " +
         join(scores);
}

class Loss {
 public:
  explicit Loss(const LocalContext& context)
      : context_(context),
        emitter_(context),
        class_axes_(emitter_.axes_of_input(0, 1)),
        labels_(emitter_.input(1)) {}

  Result<std::vector<ValueId>> run(bool with_softmax) {
    if (class_axes_.empty() && !weighted() && !emitter_.has_output(1)) return by_samples();
    std::vector<ValueId> outputs(context_.op.outputs.size());
    log_probabilities_ = widened(emitter_, emitter_.input(0));
    if (with_softmax) {
      const SoftmaxParts parts = softmax_parts(emitter_, emitter_.input(0), 1, class_axes_);
      const ValueId log = emitter_.pointwise("Log", {parts.sum});
      log_probabilities_ = emitter_.pointwise("Sub", {parts.shifted, log});
    }
    mark_ignored();
    const ValueId picked = emitter_.all_reduce(pick_own(log_probabilities_), class_axes_, "sum");
    ValueId losses = emitter_.pointwise("Neg", {picked});
    const ValueId weights = table_weights();
    if (weights.valid()) losses = emitter_.pointwise("Mul", {losses, weights});
    outputs[0] = reduced(counted_only(losses), weights);
    if (emitter_.has_output(1)) outputs[1] = finish_cast(emitter_, 1, log_probabilities_);
    return outputs;
  }

 private:
  bool weighted() const {
    return emitter_.has_input(2) || context_.op.attributes.count("ignore_index") != 0;
  }

  // Every rank has whole samples of equal weight: the op itself, scaled.
  Result<std::vector<ValueId>> by_samples() {
    const Op& op = context_.op;
    if (reduction_of(op) != LossReduction::kMean) {
      return only_output(context_, emitter_.finish(0, op.type, context_.inputs, op.attributes));
    }
    const ValueId mean =
        emitter_.add(op.type, context_.inputs, emitter_.output_dtype(0), {}, op.attributes);
    const double parts = double(emitter_.parts(sample_axes()));
    const ValueId scale = emitter_.scalar(emitter_.output_dtype(0), 1 / parts);
    return only_output(context_, emitter_.finish(0, "Mul", {mean, scale}));
  }

  DType dtype() const { return emitter_.value(log_probabilities_).dtype; }

  // Ignored labels may be no classes at all; they are replaced by class 0, whose loss is left out.
  void mark_ignored() {
    if (context_.op.attributes.count("ignore_index") == 0) return;
    const DType type = emitter_.value(labels_).dtype;
    const ValueId ignored =
        emitter_.scalar(type, double(context_.op.int_attribute("ignore_index", 0)));
    const ValueId is_ignored = emitter_.test("Equal", {labels_, ignored});
    counted_ = emitter_.test("Not", {is_ignored});
    labels_ = emitter_.pointwise("Where", {counted_, labels_, emitter_.scalar(type, 0)});
  }

  const OwnIndices& own() {
    if (own_.mask.valid()) return own_;
    const std::int64_t extent = emitter_.value(emitter_.input(0)).shape[1];
    own_ = own_indices(emitter_, labels_, class_axes_, extent);
    return own_;
  }

  // Per sample the entry of its label where the rank has it, else 0.
  ValueId pick_own(ValueId table) {
    const Shape samples = emitter_.value(labels_).shape;
    Shape column = samples;
    column.insert(column.begin() + 1, 1);
    const ValueId index = emitter_.reshape(own().clamped, column);
    const ValueId found =
        emitter_.add("GatherElements", {table, index}, emitter_.value(table).dtype, column,
                     {{"axis", std::int64_t{1}}});
    return masked(emitter_.reshape(found, samples), own().mask);
  }

  ValueId masked(ValueId value, ValueId mask) {
    const ValueId zero = emitter_.scalar(emitter_.value(value).dtype, 0);
    return emitter_.pointwise("Where", {mask, value, zero});
  }

  // Selected, since an infinite loss times 0 is no number.
  ValueId counted_only(ValueId samples) {
    return counted_.valid() ? masked(samples, counted_) : samples;
  }

  // What a sample's label weighs; nothing where every sample weighs 1.
  ValueId table_weights() {
    if (!emitter_.has_input(2)) return ValueId();
    const ValueId table = emitter_.cast(emitter_.input(2), dtype());
    const ValueId found =
        emitter_.add("Gather", {table, own().clamped}, dtype(), emitter_.value(labels_).shape);
    return emitter_.all_reduce(masked(found, own().mask), class_axes_, "sum");
  }

  // Of the samples that count, on all ranks.
  ValueId total_weight(ValueId weights) {
    if (!weights.valid() && !counted_.valid()) return emitter_.scalar(dtype(), sample_count());
    const ValueId counted =
        weights.valid() ? counted_only(weights) : emitter_.cast(counted_, dtype());
    return emitter_.all_reduce(sum_of(counted), sample_axes(), "sum");
  }

  ValueId sum_of(ValueId value) {
    std::vector<std::size_t> dims;
    for (std::size_t d = 0; d < emitter_.value(value).shape.size(); ++d) dims.push_back(d);
    return emitter_.reshape(emitter_.reduce("ReduceSum", value, dims), {});
  }

  ValueId reduced(ValueId losses, ValueId weights) {
    switch (reduction_of(context_.op)) {
      case LossReduction::kNone:
        return finish_cast(emitter_, 0, losses);
      case LossReduction::kSum:
        return finish_cast(emitter_, 0, sum_of(losses));
      case LossReduction::kMean:
        break;
    }
    // The ranks' losses over the weight of all samples: a partial sum.
    const ValueId total = total_weight(weights);
    return finish_cast(emitter_, 0, emitter_.pointwise("Div", {sum_of(losses), total}));
  }

  std::vector<int> sample_axes() const { return emitter_.axes_of(FactorKind::kSum); }
  double sample_count() const {
    return double(element_count(context_.graph.value(context_.op.inputs[1]).shape));
  }

  const LocalContext& context_;
  Emitter emitter_;
  std::vector<int> class_axes_;
  ValueId labels_;
  ValueId log_probabilities_;
  ValueId counted_;  // bool; invalid: all
  OwnIndices own_;
};

Result<std::vector<ValueId>> split_cross_entropy(const LocalContext& context) {
  return Loss(context).run(true);
}
Result<std::vector<ValueId>> split_likelihood(const LocalContext& context) {
  return Loss(context).run(false);
}

}  // namespace

std::span<const OpRow> loss_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "SoftmaxCrossEntropyLoss",
       .rule = loss_rule,
       .flops_per_element = 12,
       .grad = cross_entropy_grad,
       .split = split_cross_entropy},
      {.type = "NegativeLogLikelihoodLoss",
       .rule = loss_rule,
       .flops_per_element = 1,
       .grad = likelihood_grad,
       .split = split_likelihood},
  };
  return rows;
}

}  // namespace autopar
