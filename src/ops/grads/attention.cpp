// Gradients of attention. The probabilities are computed again from queries and keys, so that
// between forward and backward nothing of the size queries x keys is kept (FlashAttention, Dao et
// al. 2022, there in tiles):
//   P = softmax(cap(scale Q K^T) + mask), Y = P V
//   dV = P^T dY, dP = dY V^T, dS = P (dP - rowsum(dY Y)), dQ = scale dS K, dK = scale dS^T Q
// Heads stay dimensions of their own, (k g) for grouped queries, so that they can be split.
#include <cmath>
#include <numeric>

#include "ops/grads/contract.hpp"
#include "ops/grads/grads.hpp"
#include "ops/softmax.hpp"

namespace autopar {
namespace {

DType wide(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

class AttentionGrad {
 public:
  explicit AttentionGrad(const GradContext& context)
      : context_(context), to_(context.to), flat_(context.in_shape(0).size() == 3) {}

  Result<InputGrads> run() {
    InputGrads grads(context_.op.inputs.size());
    if (!context_.grad(0).valid() && !context_.grad(1).valid() && !context_.grad(2).valid() &&
        !context_.grad(3).valid()) {
      return grads;
    }
    measure();
    read_operands();
    ValueId key_grad = present_grad(1), value_grad = present_grad(2);
    if (context_.grad(0).valid() || context_.grad(3).valid()) {
      recompute();
      const ValueId scores = scores_grad(value_grad);
      if (context_.wants(3)) grads[3] = mask_grad();
      const ValueId slopes = to_.cast(scores, type_);
      if (context_.wants(0)) {
        const ValueId grad = product({{slopes, "bkgst"}, {keys_, keys_letters_}}, queries_letters_);
        grads[0] = to_.reshape(to_.scaled(grad, scale_), context_.in_shape(0));
      }
      if (context_.wants(1) || context_.wants(4)) {
        const ValueId grad =
            product({{slopes, "bkgst"}, {scaled_queries_, queries_letters_}}, keys_letters_);
        key_grad = plus(key_grad, grad);
      }
    }
    hand_out(grads, key_grad, 1, 4);
    hand_out(grads, value_grad, 2, 5);
    return grads;
  }

 private:
  void measure() {
    const Shape q = context_.in_shape(0), k = context_.in_shape(1), v = context_.in_shape(2);
    std::int64_t queries = 0, keys = 0;
    if (flat_) {
      const std::int64_t heads = context_.op.int_attribute("q_num_heads", 1);
      key_heads_ = context_.op.int_attribute("kv_num_heads", 1);
      groups_ = heads / key_heads_;
      queries = q[1];
      keys = k[1];
      head_ = q[2] / heads;
      value_head_ = v[2] / key_heads_;
    } else {
      key_heads_ = k[1];
      groups_ = q[1] / k[1];
      queries = q[2];
      keys = k[2];
      head_ = q[3];
      value_head_ = v[3];
    }
    new_keys_ = keys;
    past_ = context_.in(4).valid() ? context_.in_shape(4)[2] : 0;
    type_ = to_.dtype(context_.in(0));
    soft_ = wide(type_);
    scale_ = context_.op.float_attribute("scale", 1 / std::sqrt(static_cast<double>(head_)));
    cap_ = context_.op.float_attribute("softcap", 0);
    extents_ = {{'b', q[0]},         {'k', key_heads_}, {'g', groups_},    {'s', queries},
                {'t', keys + past_}, {'d', head_},      {'e', value_head_}};
  }

  Shape shape_of(const std::string& letters) const {
    Shape shape;
    for (char letter : letters) shape.push_back(extents_.at(letter));
    return shape;
  }

  ValueId product(const std::vector<Lettered>& operands, const std::string& letters) {
    std::map<char, std::int64_t> used;
    for (const Lettered& operand : operands) {
      for (char letter : operand.letters) used[letter] = extents_.at(letter);
    }
    return contract(to_, operands, letters, used, shape_of(letters));
  }

  ValueId plus(ValueId left, ValueId right) {
    return left.valid() ? to_.pointwise("Add", {left, right}) : right;
  }

  // Queries, keys and values with a dimension per letter; keys and values with those of the past.
  void read_operands() {
    queries_letters_ = flat_ ? "bskgd" : "bkgsd";
    output_letters_ = flat_ ? "bskge" : "bkgse";
    queries_ = to_.reshape(context_.in(0), shape_of(queries_letters_));
    keys_ = cached(1, 4, 1, "d", keys_letters_);
    values_ = cached(2, 5, 2, "e", values_letters_);
  }

  ValueId cached(std::size_t port, std::size_t past, std::size_t present, const char* letter,
                 std::string& letters) {
    letters = std::string("bkt") + letter;
    if (context_.op.has_output(present)) return context_.out(present);
    if (!flat_) {
      if (past_ == 0) return context_.in(port);
      return to_.concat({context_.in(past), context_.in(port)}, 2);
    }
    Shape apart = context_.in_shape(port);
    apart = {apart[0], apart[1], key_heads_, apart[2] / key_heads_};
    const ValueId heads = to_.reshape(context_.in(port), apart);
    if (past_ == 0) {
      letters = std::string("btk") + letter;
      return heads;
    }
    return to_.concat({context_.in(past), to_.transpose(heads, {0, 2, 1, 3})}, 2);
  }

  // In the letters of the keys or values.
  ValueId present_grad(std::size_t port) {
    const ValueId grad = context_.grad(port);
    if (!grad.valid()) return grad;
    const std::string& letters = port == 1 ? keys_letters_ : values_letters_;
    return letters[1] == 't' ? to_.transpose(grad, {0, 2, 1, 3}) : grad;
  }

  void recompute() {
    scaled_queries_ = to_.scaled(queries_, scale_);
    const ValueId raw = to_.cast(
        product({{scaled_queries_, queries_letters_}, {keys_, keys_letters_}}, "bkgst"), soft_);
    ValueId scores = raw;
    if (cap_ != 0) {
      bent_ = to_.pointwise("Tanh", {to_.scaled(raw, 1 / cap_)});
      scores = to_.scaled(bent_, cap_);
    }
    if (context_.in(3).valid()) scores = with_mask(scores);
    const ValueId seen = seen_keys();
    if (seen.valid()) {
      scores = to_.pointwise("Where", {seen, scores, to_.scalar(soft_, lowest())});
    }
    probabilities_ = to_.pointwise("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    if (context_.in(3).valid() || context_.in(6).valid()) probabilities_ = of_seeing(scores);
  }

  // 0 for queries that see no key, as their output is. A causal mask alone leaves each a key.
  ValueId of_seeing(ValueId scores) {
    return where_seen(to_, probabilities_, to_.reduce("ReduceMax", scores, {4}));
  }

  // Of keys that are not seen.
  double lowest() const { return -largest_of(soft_); }

  // The mask with all dimensions of the scores; what is broadcast is 1.
  ValueId spread_mask(ValueId mask) {
    Shape shape = to_.shape(mask);
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    const std::int64_t heads = shape[1];
    shape[1] = heads == 1 ? 1 : key_heads_;
    shape.insert(shape.begin() + 2, heads == 1 ? 1 : groups_);
    return to_.reshape(mask, shape);
  }

  // A mask of fewer keys ends with keys that are not seen; since opset 24 that includes one of 1.
  std::int64_t lacking_keys() const {
    const std::int64_t given = context_.in_shape(3).back();
    return given == 1 && to_.graph().opset < 24 ? 0 : extents_.at('t') - given;
  }

  ValueId with_mask(ValueId scores) {
    ValueId mask = context_.in(3);
    const bool flags = to_.dtype(mask) == DType::kBool;
    if (!flags) mask = widened_mask(to_, mask, soft_);
    const Shape given = to_.shape(mask);
    const std::int64_t lacking = lacking_keys();
    if (lacking > 0) {
      Shape rest = given;
      rest.back() = lacking;
      const ValueId none =
          flags ? to_.filled(DType::kBool, rest, 0) : to_.filled(soft_, rest, lowest());
      mask = to_.concat({mask, none}, given.size() - 1);
    }
    mask = spread_mask(mask);
    if (flags) return to_.pointwise("Where", {mask, scores, to_.scalar(soft_, lowest())});
    return to_.pointwise("Add", {scores, mask});
  }

  ValueId counted(std::int64_t begin, std::int64_t count, Shape shape) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
    std::iota(numbers.begin(), numbers.end(), begin);
    return to_.constant(int64_tensor(shape, numbers));
  }

  // Which keys are seen at all; invalid: all of them.
  ValueId seen_keys() {
    const std::int64_t queries = extents_.at('s'), keys = extents_.at('t');
    ValueId seen;
    if (context_.op.int_attribute("is_causal", 0) != 0) {
      seen = to_.test(
          "Not",
          {to_.test("Less", {counted(past_, queries, {queries, 1}), counted(0, keys, {1, keys})})});
    }
    if (context_.in(6).valid()) {
      const ValueId lengths = to_.reshape(context_.in(6), {extents_.at('b'), 1, 1, 1, 1});
      const ValueId inside = to_.test("Less", {counted(0, keys, {keys}), lengths});
      seen = seen.valid() ? to_.test("And", {seen, inside}) : inside;
    }
    return seen;
  }

  // dL/d(scale Q K^T), and what the values get.
  ValueId scores_grad(ValueId& value_grad) {
    const std::int64_t mode = context_.op.int_attribute("qk_matmul_output_mode", 0);
    const ValueId extra = context_.grad(3).valid()
                              ? to_.cast(to_.reshape(context_.grad(3), shape_of("bkgst")), soft_)
                              : ValueId();
    ValueId slopes;  // of the masked scores
    if (context_.grad(0).valid())
      slopes = through_values(value_grad, mode == 3 ? extra : ValueId());
    if (!context_.grad(0).valid() && mode == 3) slopes = through_softmax(extra, ValueId());
    if (extra.valid() && mode == 2) slopes = plus(slopes, extra);
    masked_grad_ = slopes;
    if (extra.valid() && mode == 1) slopes = plus(slopes, extra);
    if (cap_ != 0 && slopes.valid()) {
      const ValueId one = to_.scalar(soft_, 1);
      const ValueId steep = to_.pointwise("Sub", {one, to_.pointwise("Mul", {bent_, bent_})});
      slopes = to_.pointwise("Mul", {slopes, steep});
    }
    return extra.valid() && mode == 0 ? plus(slopes, extra) : slopes;
  }

  ValueId through_values(ValueId& value_grad, ValueId extra) {
    const ValueId grad = to_.reshape(context_.grad(0), shape_of(output_letters_));
    if (context_.wants(2) || context_.wants(5)) {
      const ValueId shares = to_.cast(probabilities_, to_.dtype(values_));
      value_grad =
          plus(value_grad,
               product({{shares, "bkgst"}, {to_.cast(grad, to_.dtype(values_)), output_letters_}},
                       values_letters_));
    }
    const ValueId shares_grad = to_.cast(
        product({{to_.cast(grad, to_.dtype(values_)), output_letters_}, {values_, values_letters_}},
                "bkgst"),
        soft_);
    // What the probabilities' changes add up to, told by the output.
    const ValueId output = to_.reshape(context_.out(0), shape_of(output_letters_));
    const ValueId both = to_.pointwise("Mul", {to_.cast(grad, soft_), to_.cast(output, soft_)});
    ValueId sum = to_.reduce("ReduceSum", both, {4});
    if (flat_) sum = to_.transpose(sum, {0, 2, 3, 1, 4});
    if (!extra.valid()) return through_softmax(shares_grad, sum);
    return through_softmax(to_.pointwise("Add", {shares_grad, extra}), ValueId());
  }

  ValueId through_softmax(ValueId grad, ValueId sum) {
    if (!sum.valid()) {
      sum = to_.reduce("ReduceSum", to_.pointwise("Mul", {probabilities_, grad}), {4});
    }
    return to_.pointwise("Mul", {probabilities_, to_.pointwise("Sub", {grad, sum})});
  }

  ValueId mask_grad() {
    if (!masked_grad_.valid()) return ValueId();
    const Shape given = context_.in_shape(3);
    ValueId grad = masked_grad_;
    if (lacking_keys() > 0) grad = to_.slice(grad, 4, 0, given.back());
    Shape spread = given;
    spread.insert(spread.begin(), 4 - spread.size(), 1);
    const bool each = spread[1] != 1;
    spread[1] = each ? key_heads_ : 1;
    spread.insert(spread.begin() + 2, each ? groups_ : 1);
    return to_.cast(to_.reshape(to_.sum_to(grad, spread), given), to_.dtype(context_.in(3)));
  }

  // The gradient of present keys or values to those of the past and the new ones.
  void hand_out(InputGrads& grads, ValueId grad, std::size_t port, std::size_t past) {
    if (!grad.valid()) return;
    const std::string& letters = port == 1 ? keys_letters_ : values_letters_;
    const std::size_t t = letters.find('t');
    if (context_.wants(past)) grads[past] = to_.slice(grad, t, 0, past_);
    if (!context_.wants(port)) return;
    ValueId own = to_.slice(grad, t, past_, past_ + new_keys_);
    if (flat_ && t == 2) own = to_.transpose(own, {0, 2, 1, 3});
    grads[port] = to_.reshape(own, context_.in_shape(port));
  }

  const GradContext& context_;
  GraphBuilder& to_;
  const bool flat_;  // 3-D inputs: [b, s, heads and what they consist of]
  std::int64_t key_heads_ = 1, groups_ = 1, head_ = 1, value_head_ = 1;
  std::int64_t past_ = 0, new_keys_ = 0;
  DType type_ = DType::kFloat32, soft_ = DType::kFloat32;  // of the op; of its softmax
  double scale_ = 1, cap_ = 0;
  std::map<char, std::int64_t> extents_;
  std::string queries_letters_, keys_letters_, values_letters_, output_letters_;
  ValueId queries_, scaled_queries_, keys_, values_;
  ValueId bent_;  // tanh of the scores over the cap
  ValueId probabilities_;
  ValueId masked_grad_;
};

// Turned back by the same angles.
struct Rotation {
  const GradContext& context;
  GraphBuilder& to = context.to;
  const bool flat = context.in_shape(0).size() == 3;

  // The two coordinates of what is rotated: [b, s, heads, pairs] each, heads before s in 4-D.
  std::pair<ValueId, ValueId> coordinates(ValueId from) const {
    const std::int64_t heads = context.op.int_attribute("num_heads", 1);
    Shape shape = context.in_shape(0);
    if (flat) shape = {shape[0], shape[1], heads, shape[2] / heads};
    const std::int64_t pairs = context.in_shape(1).back();
    const ValueId rotated = to.slice(to.reshape(from, shape), 3, 0, 2 * pairs);
    const bool between = context.op.int_attribute("interleaved", 0) != 0;
    Shape whole = {shape[0], shape[1], shape[2], between ? pairs : 2, between ? 2 : pairs};
    const ValueId apart = to.reshape(rotated, whole);
    Shape part = {shape[0], shape[1], shape[2], pairs};
    const std::size_t d = between ? 4 : 3;
    return {to.reshape(to.slice(apart, d, 0, 1), part), to.reshape(to.slice(apart, d, 1, 2), part)};
  }

  // The sum over the heads, added up where position ids have looked up the same row.
  ValueId of_cache(ValueId slope) const {
    const ValueId sum = to.reduce("ReduceSum", slope, {flat ? std::size_t{2} : 1}, false);
    if (!context.in(3).valid()) return to.reshape(sum, context.in_shape(1));
    const ValueId places = to.unsqueeze(context.in(3), 2);
    return scattered_sum(to, "ScatterND", context.in_shape(1), places, sum);
  }
};

}  // namespace

Result<InputGrads> rotary_grad(const GradContext& context) {
  GraphBuilder& to = context.to;
  InputGrads grads(context.op.inputs.size());
  const ValueId g = context.grad();
  if (!g.valid()) return grads;
  if (context.wants(0)) {
    std::vector<ValueId> inputs = context.op.inputs;
    inputs[0] = g;
    inputs[2] = to.pointwise("Neg", {inputs[2]});
    grads[0] = to.add(context.op.type, inputs, to.dtype(g), to.shape(g), context.op.attributes);
  }
  if (!context.wants(1) && !context.wants(2)) return grads;
  const Rotation rotation{context};
  const auto [x1, x2] = rotation.coordinates(context.in(0));
  const auto [g1, g2] = rotation.coordinates(g);
  if (context.wants(1)) {
    grads[1] = rotation.of_cache(
        to.pointwise("Add", {to.pointwise("Mul", {g1, x1}), to.pointwise("Mul", {g2, x2})}));
  }
  if (context.wants(2)) {
    grads[2] = rotation.of_cache(
        to.pointwise("Sub", {to.pointwise("Mul", {g2, x1}), to.pointwise("Mul", {g1, x2})}));
  }
  return grads;
}

Result<InputGrads> attention_grad(const GradContext& context) {
  return AttentionGrad(context).run();
}

}  // namespace autopar
