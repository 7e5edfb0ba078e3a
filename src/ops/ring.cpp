// Attention over a ring of devices: each has a part of the queries and of the keys and values,
// which go round, so that they are never there whole (Ring Attention: Liu, Zaharia, Abbeel, ICLR
// 2024). What a query has seen so far is a maximum m, a sum l of powers and a weighted sum O of
// values, which the scores S of the next part of keys correct (Milakov, Gimelshein 2018;
// FlashAttention):
//
//   m' = max(m, max S), c = exp(m - m'), P = exp(S - m'), l' = l c + sum P, O' = O c + P V
//
// With a causal mask parts that a query must not see are computed and left out, since all ranks run
// one program.
#include <cmath>

#include "ops/emitter.hpp"
#include "ops/softmax.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

class Ring {
 public:
  explicit Ring(const LocalContext& context)
      : context_(context),
        emitter_(context),
        axes_(emitter_.axes_of("ring")),
        flat_(emitter_.value(emitter_.input(0)).shape.size() == 3) {
    const Shape& keys = context.graph.value(context.op.inputs[1]).shape;
    keys_ = keys[flat_ ? 1 : 2];
    const std::int64_t kv = flat_ ? context.op.int_attribute("kv_num_heads", 1) : keys[1];
    const std::int64_t heads = flat_ ? context.op.int_attribute("q_num_heads", 1)
                                     : context.graph.value(context.op.inputs[0]).shape[1];
    key_heads_ = kv / emitter_.parts(emitter_.axes_of("kv"));
    groups_ = heads / kv / emitter_.parts(emitter_.axes_of("g"));
  }

  ValueId run() {
    ValueId keys = emitter_.input(1), values = emitter_.input(2);
    const std::int64_t steps = emitter_.parts(axes_);
    const ValueId queries = scaled_queries();
    for (std::int64_t step = 0; step < steps; ++step) {
      if (step > 0) {
        // What was done with the part before is done by then, so that there are never more.
        keys = emitter_.permute(keys, axes_, 1, sums_);
        values = emitter_.permute(values, axes_, 1, {});
      }
      see(scores(queries, keys, step), values);
    }
    return output(of_seeing(emitter_.pointwise("Div", {sums_, powers_})));
  }

 private:
  // [b, kv, g, s, d]: heads apart.
  ValueId scaled_queries() {
    const ValueId apart = apart_heads(emitter_.input(0), key_heads_ * groups_);
    Shape shape = emitter_.value(apart).shape;
    const std::int64_t head = shape[3];
    shape = {shape[0], key_heads_, groups_, shape[2], head};
    const double scale =
        context_.op.float_attribute("scale", 1 / std::sqrt(static_cast<double>(head)));
    return emitter_.scaled(emitter_.reshape(apart, shape), scale);
  }

  // [b, heads, rows, of one head].
  ValueId apart_heads(ValueId from, std::int64_t heads) {
    if (!flat_) return from;
    const Shape shape = emitter_.value(from).shape;
    const ValueId apart = emitter_.reshape(from, {shape[0], shape[1], heads, shape[2] / heads});
    return emitter_.transpose(apart, {0, 2, 1, 3});
  }

  // [b, kv, 1, t, d] of a part of keys or values.
  ValueId per_group(ValueId from) { return emitter_.unsqueeze(apart_heads(from, key_heads_), 2); }

  // [b, kv, g, s, t].
  ValueId scores(ValueId queries, ValueId keys, std::int64_t step) {
    ValueId scores =
        widened(emitter_, emitter_.matmul(queries, emitter_.swap_last(per_group(keys))));
    const double cap = context_.op.float_attribute("softcap", 0);
    if (cap != 0) {
      scores = emitter_.scaled(emitter_.pointwise("Tanh", {emitter_.scaled(scores, 1 / cap)}), cap);
    }
    const bool causal = context_.op.int_attribute("is_causal", 0) != 0;
    if (!causal && !emitter_.has_input(3)) return scores;
    const ValueId columns = columns_at(step);
    if (emitter_.has_input(3)) scores = masked(scores, columns);
    if (causal) scores = seen_only(scores, seen_by_own(columns));
    return scores;
  }

  // Which keys the part is that a rank has in a step: int64, rank 1.
  ValueId columns_at(std::int64_t step) {
    const std::int64_t parts = emitter_.parts(axes_), part = keys_ / parts;
    std::vector<std::int64_t> columns;
    for (std::int64_t position = 0; position < parts; ++position) {
      const std::int64_t source = (position - step + parts) % parts;
      for (std::int64_t i = 0; i < part; ++i) columns.push_back(source * part + i);
    }
    return emitter_.own_part(emitter_.constant(int64_tensor({keys_}, columns)), axes_, 0);
  }

  // [s, t]: a query sees the keys up to its own place.
  ValueId seen_by_own(ValueId columns) {
    const std::size_t d = flat_ ? 1 : 2;
    const std::int64_t queries = context_.graph.value(context_.op.inputs[0]).shape[d];
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < queries; ++i) rows.push_back(i);
    const ValueId own = emitter_.own_part(emitter_.constant(int64_tensor({queries, 1}, rows)),
                                          emitter_.axes_of_input(0, d), 0);
    return emitter_.test("Not", {emitter_.test("Less", {own, emitter_.unsqueeze(columns, 0)})});
  }

  // Finite, so that a query that sees no key of a part is not a number divided by 0: what it sees
  // in another part makes nothing of it. One that sees no key of any part has this as its maximum.
  ValueId lowest(ValueId like) {
    const DType dtype = emitter_.value(like).dtype;
    return emitter_.scalar(dtype, -largest_of(dtype));
  }

  ValueId seen_only(ValueId scores, ValueId seen) {
    return emitter_.pointwise("Where", {seen, scores, lowest(scores)});
  }

  // The columns of the mask, with all dimensions of the scores.
  ValueId masked(ValueId scores, ValueId columns) {
    const ValueId whole = emitter_.input(3);
    Shape shape = emitter_.value(whole).shape;
    const auto last = static_cast<std::int64_t>(shape.size()) - 1;
    shape.back() = emitter_.value(columns).shape[0];
    ValueId mask = emitter_.add("Gather", {whole, columns}, emitter_.value(whole).dtype, shape,
                                {{"axis", last}});
    shape.insert(shape.begin(), 4 - shape.size(), 1);
    const bool alike = shape[1] == 1;
    shape[1] = alike ? 1 : key_heads_;
    shape.insert(shape.begin() + 2, alike ? 1 : groups_);
    mask = emitter_.reshape(mask, shape);
    if (emitter_.value(mask).dtype == DType::kBool) return seen_only(scores, mask);
    const ValueId added = widened_mask(emitter_, mask, emitter_.value(scores).dtype);
    const ValueId sum = emitter_.pointwise("Add", {scores, added});
    return emitter_.pointwise("Max", {sum, lowest(scores)});
  }

  // 0 for queries that see no key at all. A causal mask alone leaves each at least the first one.
  ValueId of_seeing(ValueId means) {
    if (!emitter_.has_input(3)) return means;
    return where_seen(emitter_, means, most_);
  }

  void see(ValueId scores, ValueId values) {
    const std::size_t last = 4;
    ValueId most = emitter_.reduce("ReduceMax", scores, {last});
    if (most_.valid()) most = emitter_.pointwise("Max", {most_, most});
    const ValueId powers = emitter_.pointwise("Exp", {emitter_.pointwise("Sub", {scores, most})});
    const ValueId sum = emitter_.reduce("ReduceSum", powers, {last});
    const DType dtype = emitter_.value(values).dtype;
    const ValueId product =
        widened(emitter_, emitter_.matmul(emitter_.cast(powers, dtype), per_group(values)));
    if (most_.valid()) {
      const ValueId less = emitter_.pointwise("Exp", {emitter_.pointwise("Sub", {most_, most})});
      powers_ = emitter_.pointwise("Add", {emitter_.pointwise("Mul", {powers_, less}), sum});
      sums_ = emitter_.pointwise("Add", {emitter_.pointwise("Mul", {sums_, less}), product});
    } else {
      powers_ = sum;
      sums_ = product;
    }
    most_ = most;
  }

  // As the op leaves it.
  ValueId output(ValueId from) {
    const Shape shape = emitter_.output_shape(0);
    if (flat_) {
      // [b, kv, g, s, f] -> [b, s, kv, g, f]
      from = emitter_.transpose(from, {0, 3, 1, 2, 4});
    }
    return finish_cast(emitter_, 0, emitter_.reshape(from, shape));
  }

  const LocalContext& context_;
  Emitter emitter_;
  std::vector<int> axes_;
  bool flat_;
  std::int64_t keys_ = 0, key_heads_ = 1, groups_ = 1;
  ValueId most_, powers_, sums_;  // of the parts seen so far
};

}  // namespace

Result<std::vector<ValueId>> ring_attention(const LocalContext& context) {
  return only_output(context, Ring(context).run());
}

}  // namespace autopar
