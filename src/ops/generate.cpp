// Ops that make tensors from little or nothing.
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// Zeros are a partial sum of zeros.
RuleText constant_of_shape_rule(const OpView& view) {
  const auto value = view.op.attributes.find("value");
  bool zero = value == view.op.attributes.end();
  if (!zero) {
    const Tensor* tensor = std::get_if<Tensor>(&value->second);
    zero = tensor != nullptr && tensor->bytes.find_first_not_of('\0') == std::string::npos;
  }
  return "_ -> " + join(dim_names(view.out(0).size())) + (zero ? " | partial: none" : "");
}

// Every device makes the whole: what a random op gives depends on its whole shape, and the others
// are small.
RuleText whole_rule(const OpView& view) {
  std::string text;
  for (std::size_t i = 0; i < view.shapes.inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + whole_dims(view.in(i).size());
  }
  text += " -> ";
  for (std::size_t i = 0; i < view.shapes.outputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + whole_dims(view.out(i).size());
  }
  return text;
}

RuleText affine_grid_rule(const OpView& view) {
  if (view.out(0).empty()) return std::nullopt;
  return "n _ _, _ -> n " + whole_dims(view.out(0).size() - 1);
}

void set_grid_batch(const LocalContext& context, Op& op) {
  auto size = constant_ints(context.graph, context.op, 1);
  if (!size || size->empty()) return;
  Emitter emitter(context);
  size->front() = emitter.output_shape(0).front();
  op.inputs[1] = emitter.ints(*size);
}

OpRow random(const char* type) {
  return {.type = type, .rule = whole_rule, .rewrite = set_common_seed};
}

OpRow whole(const char* type) { return {.type = type, .rule = whole_rule}; }

// The input only tells a shape or a type.
OpRow flat(const char* type, RewriteFunction rewrite = nullptr) {
  return {.type = type, .rule = whole_rule, .grad_text = "", .rewrite = rewrite};
}

// Without a seed of its own the op gets one made of its name (Fowler-Noll-Vo hash, FNV-1a).
void set_seed(Op& op, const std::string& name) {
  if (op.attributes.count("seed") != 0) return;
  std::uint32_t hash = 2166136261u;
  for (unsigned char c : name) hash = (hash ^ c) * 16777619u;
  // Few enough bits for a floating attribute.
  const std::uint32_t bits = 1u << 20;
  const bool integral = op.type == "Dropout";
  if (integral) {
    op.attributes["seed"] = static_cast<std::int64_t>(hash % bits);
  } else {
    op.attributes["seed"] = static_cast<double>(hash % bits);
  }
}

}  // namespace

// Devices that hold the same tensor must draw the same numbers.
void set_common_seed(const LocalContext& context, Op& op) { set_seed(op, context.op.name); }

void seed_random_ops(Graph& graph) {
  for (Op& op : graph.ops) {
    if (is_random(op)) set_seed(op, op.name);
  }
}

std::span<const OpRow> generator_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "ConstantOfShape",
       .rule = constant_of_shape_rule,
       .flops_per_element = 0,
       .operands = operand_bits({0}),
       .rewrite = set_shape_input<0>,
       .exact_on_integers = true},
      {.type = "AffineGrid",
       .rule = affine_grid_rule,
       .grad = affine_grid_grad,
       .operands = operand_bits({1}),
       .rewrite = set_grid_batch},
      random("Bernoulli"),
      whole("BlackmanWindow"),
      whole("Constant"),
      {.type = "MaxUnpool", .rule = whole_rule, .grad = max_unpool_grad},
      flat("EyeLike"),
      whole("HammingWindow"),
      whole("HannWindow"),
      whole("MelWeightMatrix"),
      random("Multinomial"),
      random("RandomNormal"),
      flat("RandomNormalLike", set_common_seed),
      random("RandomUniform"),
      flat("RandomUniformLike", set_common_seed),
      whole("Range"),
      whole("Shape"),
      whole("Size"),
  };
  return rows;
}

}  // namespace autopar
