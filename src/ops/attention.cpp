// Attention (opset 23), rotary position embedding. Heads of grouped-query attention are (kv g):
// kv heads of keys and values, each read by g heads of queries.
#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

struct AttentionShape {
  std::int64_t query_heads = 0, key_heads = 0;
  std::int64_t batch = 0, queries = 0, keys = 0;  // keys: with those of the past
  double head = 0, value_head = 0;                // elements per head
};

std::optional<AttentionShape> attention_shape(const Op& op, const OpShapes& shapes) {
  if (shapes.inputs.size() < 3) return std::nullopt;
  const Shape &q = shapes.inputs[0], &k = shapes.inputs[1], &v = shapes.inputs[2];
  AttentionShape shape;
  if (q.size() == 4 && k.size() == 4 && v.size() == 4) {
    shape = {q[1], k[1], q[0], q[2], k[2], double(q[3]), double(v[3])};
  } else if (q.size() == 3 && k.size() == 3 && v.size() == 3) {
    shape.query_heads = op.int_attribute("q_num_heads", 0);
    shape.key_heads = op.int_attribute("kv_num_heads", 0);
    if (shape.query_heads <= 0 || shape.key_heads <= 0) return std::nullopt;
    shape.batch = q[0];
    shape.queries = q[1];
    shape.keys = k[1];
    shape.head = double(q[2]) / double(shape.query_heads);
    shape.value_head = double(v[2]) / double(shape.key_heads);
  } else {
    return std::nullopt;
  }
  if (shapes.inputs.size() > 4 && shapes.inputs[4].size() == 4) shape.keys += shapes.inputs[4][2];
  if (shape.key_heads <= 0 || shape.query_heads % shape.key_heads != 0) return std::nullopt;
  return shape;
}

std::string mask_words(const Shape& mask, const std::string& heads, const std::string& queries) {
  const std::vector<std::string> all = {"b", heads, queries, "_"};
  return join(
      {all.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(mask.size(), 4)), all.end()});
}

RuleText attention_rule(const OpView& view) {
  const auto shape = attention_shape(view.op, view.shapes);
  if (!shape) return std::nullopt;
  // The present keys and values are the same for all queries that read them.
  const bool present = view.op.has_output(1) || view.op.has_output(2);
  const std::string kv = "kv=" + std::to_string(shape->key_heads);
  const std::string g =
      (present ? "g~=" : "g=") + std::to_string(shape->query_heads / shape->key_heads);
  // A causal mask counts queries from the first one: a rank is given its part of that mask.
  const bool causal = view.op.int_attribute("is_causal", 0) != 0;
  const bool past = view.op.has_input(4) || view.op.has_input(6);
  const std::string s = causal && past ? "_" : causal || present ? "s~" : "s";
  // What a head consists of stays whole.
  const bool flat = view.in(0).size() == 3;
  // Keys and values may go round where nothing else is said of them.
  const Shape& mask = view.in(3);
  const bool ring =
      !present && !past && !view.op.has_output(3) && (mask.empty() || mask.back() == shape->keys);
  const std::string t = ring ? "t^" : "_";
  const std::string query =
      flat ? "b " + s + " (" + kv + " " + g + " e^)" : "b (" + kv + " " + g + ") " + s + " _";
  const std::string key = flat ? "b " + t + " (kv e^)" : "b kv " + t + " _";
  const std::string value = flat ? "b " + t + " (kv f^)" : "b kv " + t + " _";
  const std::string output = flat ? "b " + s + " (kv g f^)" : query;
  const std::string scores = "b (kv g) " + s + " _";
  return query + ", " + key + ", " + value + ", " + mask_words(view.in(3), "(kv g)", s) +
         ", b kv _ _, b kv _ _, b -> " + output + ", b kv _ _, b kv _ _, " + scores +
         (ring ? " | moving ring: s, t, t, s -> s" : "");
}

std::int64_t parts_of(const LocalContext& context, const char* name) {
  const int factor = context.rule.factor_index(name);
  std::int64_t parts = 1;
  for (std::size_t a = 0; a < context.mesh.axes.size(); ++a) {
    if (factor >= 0 && context.assignment.factor_of_axis[a] == factor) {
      parts *= context.mesh.axes[a].size;
    }
  }
  return parts;
}

void divide_attribute(Op& op, const char* name, std::int64_t parts) {
  const std::int64_t count = op.int_attribute(name, 0);
  if (count > 0 && parts > 1) op.attributes[name] = count / parts;
}

void set_head_counts(const LocalContext& context, Op& op) {
  const std::int64_t kv = parts_of(context, "kv");
  divide_attribute(op, "q_num_heads", kv * parts_of(context, "g"));
  divide_attribute(op, "kv_num_heads", kv);
}

void set_rotary_heads(const LocalContext& context, Op& op) {
  divide_attribute(op, "num_heads", parts_of(context, "h"));
}

// Which keys each of the rank's queries may see: the part of the causal mask that belongs to it.
ValueId causal_mask(Emitter& emitter, const std::vector<int>& axes, std::int64_t queries,
                    std::int64_t keys) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(queries));
  std::vector<std::int64_t> columns(static_cast<std::size_t>(keys));
  std::iota(rows.begin(), rows.end(), 0);
  std::iota(columns.begin(), columns.end(), 0);
  const ValueId all = emitter.constant(int64_tensor({queries, 1}, rows));
  const ValueId own = emitter.own_part(all, axes, 0);
  const ValueId key = emitter.constant(int64_tensor({1, keys}, columns));
  return emitter.test("Not", {emitter.test("Less", {own, key})});
}

// Queries that are split, and perhaps outputs that are the same for all of them.
Result<std::vector<ValueId>> split_attention(const LocalContext& context) {
  Emitter emitter(context);
  const bool flat = emitter.value(emitter.input(0)).shape.size() == 3;
  const std::size_t d = flat ? 1 : 2;
  const std::vector<int> axes = emitter.axes_of_input(0, d);
  Op op = context.op;
  op.inputs = context.inputs;
  set_head_counts(context, op);
  if (op.int_attribute("is_causal", 0) != 0 && !axes.empty()) {
    const std::int64_t queries = context.graph.value(context.op.inputs[0]).shape[d];
    const std::int64_t keys = emitter.value(emitter.input(1)).shape[d];
    ValueId mask = causal_mask(emitter, axes, queries, keys);
    if (op.has_input(3)) {
      const DType dtype = emitter.value(op.inputs[3]).dtype;
      const bool flags = dtype == DType::kBool;
      mask = flags
                 ? emitter.test("And", {mask, op.inputs[3]})
                 : emitter.pointwise(
                       "Where", {mask, op.inputs[3],
                                 emitter.scalar(dtype, -std::numeric_limits<double>::infinity())});
    }
    op.inputs.resize(std::max<std::size_t>(op.inputs.size(), 4));
    op.inputs[3] = mask;
    op.attributes.erase("is_causal");
  }
  return emitter.finish_all(op);
}

Work attention_work(const Op& op, const OpShapes& shapes) {
  Work work = streaming_work(op, shapes);
  const auto shape = attention_shape(op, shapes);
  if (!shape) return work;
  const double scores = double(shape->batch) * double(shape->query_heads) * double(shape->queries) *
                        double(shape->keys);
  work.flops = scores * (2 * shape->head + 2 * shape->value_head + 8);
  return work;
}

// 4-D: [b, heads, s, head]; 3-D: [b, s, heads * head]. Caches are [b, s, half] or, with position
// ids, tables that are looked up.
RuleText rotary_rule(const OpView& view) {
  const bool flat = view.in(0).size() == 3;
  const std::int64_t heads = view.op.int_attribute("num_heads", 0);
  if (flat && heads <= 0) return std::nullopt;
  const std::string x = flat ? "b s (h=" + std::to_string(heads) + " e^)" : "b h s _";
  const bool positions = view.op.has_input(3);
  const std::string cache = positions ? "_ _" : "b s _";
  return x + ", " + cache + ", " + cache + ", b s -> " + x + " | partial: 0";
}

}  // namespace

std::span<const OpRow> attention_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "Attention",
       .rule = attention_rule,
       .work = attention_work,
       .grad = attention_grad,
       .rewrite = set_head_counts,
       .split = split_attention,
       .moving = ring_attention},
      {.type = "RotaryEmbedding",
       .rule = rotary_rule,
       .flops_per_element = 4,
       .grad = rotary_grad,
       .rewrite = set_rotary_heads},
  };
  return rows;
}

}  // namespace autopar
