// Ops that see the same elements in the same order under another shape.
#include <numeric>
#include <vector>

#include "ops/emitter.hpp"
#include "ops/grads/grads.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// The dimensions of both shapes written over common factors ("(b h), d" and "b, (h d)").
//
// Walks both shapes from the major end. While the extents that are left of the current dimensions
// nest, the smaller one is a factor of both. Where they do not nest, their greatest common divisor
// still is, since it is the major part of both; what is left then, up to the next place where both
// shapes end a dimension together, stays whole. Linear in the ranks.
class Refinement {
 public:
  Refinement(const Shape& from, const Shape& to) : from_(from), to_(to) {}

  std::string run() {
    from_words_.resize(from_.size());
    to_words_.resize(to_.size());
    std::size_t i = 0, j = 0;
    std::int64_t left = 1, right = 1;  // what is left of from[i - 1] and to[j - 1]
    while (true) {
      while (left == 1 && i < from_.size()) left = from_[i++];
      while (right == 1 && j < to_.size()) right = to_[j++];
      if (left == 1 || right == 1) break;
      const std::int64_t common = std::gcd(left, right);
      if (common > 1) {
        const std::string word = name() + "=" + std::to_string(common);
        from_words_[i - 1].push_back(word);
        to_words_[j - 1].push_back(word);
        left /= common;
        right /= common;
        if (left == 1 || right == 1) continue;
      }
      skip_to_common_end(i, j, left, right);
      left = right = 1;
    }
    return text(from_words_) + " -> " + text(to_words_) + " | partial: 0";
  }

 private:
  using Words = std::vector<std::vector<std::string>>;

  std::string name() { return "d" + std::to_string(count_++); }

  void keep_whole(std::vector<std::string>& dim, std::int64_t extent) {
    if (extent > 1) dim.push_back(name() + "^=" + std::to_string(extent));
  }

  // Equal numbers of elements are left on both sides at the end.
  void skip_to_common_end(std::size_t& i, std::size_t& j, std::int64_t left, std::int64_t right) {
    keep_whole(from_words_[i - 1], left);
    keep_whole(to_words_[j - 1], right);
    while (left != right) {
      if (left < right && i < from_.size()) {
        left *= from_[i];
        keep_whole(from_words_[i], from_[i]);
        ++i;
      } else if (right < left && j < to_.size()) {
        right *= to_[j];
        keep_whole(to_words_[j], to_[j]);
        ++j;
      } else {
        return;
      }
    }
  }

  static std::string text(const Words& dims) {
    std::vector<std::string> words;
    for (const auto& dim : dims) {
      const bool whole = dim.empty() || (dim.size() == 1 && dim[0].find('^') != std::string::npos);
      words.push_back(whole ? "_" : dim.size() == 1 ? dim[0] : "(" + join(dim) + ")");
    }
    return join(words);
  }

  const Shape& from_;
  const Shape& to_;
  Words from_words_, to_words_;
  int count_ = 0;
};

RuleText reshape_rule(const OpView& view) {
  const Shape& from = view.in(0);
  const Shape& to = view.out(0);
  if (element_count(from) != element_count(to) || element_count(from) >= kMaxElements) {
    return std::nullopt;
  }
  std::string operand = view.shapes.inputs.size() > 1 ? ", _" : "";
  if (element_count(from) == 0) {
    return whole_dims(from.size()) + operand + " -> " + whole_dims(to.size());
  }
  std::string text = Refinement(from, to).run();
  return text.insert(text.find(" -> "), operand);
}

void set_target(const LocalContext& context, Op& op) {
  Emitter emitter(context);
  const Shape shape = emitter.output_shape(0);
  op.inputs[1] = emitter.ints(shape);
  op.attributes.erase("allowzero");
  for (std::int64_t extent : shape) {
    if (extent == 0) op.attributes["allowzero"] = std::int64_t{1};
  }
}

// Without axes it removes every dimension of extent 1, of which splitting makes more.
void set_squeezed_axes(const LocalContext& context, Op& op) {
  if (context.op.has_input(1)) return;
  const Shape& whole = context.graph.value(context.op.inputs[0]).shape;
  std::vector<std::int64_t> axes;
  for (std::size_t d = 0; d < whole.size(); ++d) {
    if (whole[d] == 1) axes.push_back(static_cast<std::int64_t>(d));
  }
  op.inputs.resize(2);
  op.inputs[1] = Emitter(context).ints(axes);
}

// [n, c * r * r, h, w] -> [n, c, h * r, w * r]; what the blocks are made of stays whole.
RuleText depth_to_space_rule(const OpView& view) {
  const std::string r = "=" + std::to_string(view.op.int_attribute("blocksize", 1));
  const bool column_row = view.op.string_attribute("mode", "DCR") == "CRD";
  const std::string blocks = "rh^" + r + " rw^" + r;
  return "n (" + (column_row ? "c " + blocks : blocks + " c") + ") h w -> n c (h rh^" + r +
         ") (w rw^" + r + ") | partial: 0";
}

RuleText space_to_depth_rule(const OpView& view) {
  const std::string r = "=" + std::to_string(view.op.int_attribute("blocksize", 1));
  return "n c (h rh^" + r + ") (w rw^" + r + ") -> n (rh^ rw^ c) h w | partial: 0";
}

}  // namespace

RuleText sums_on_rule(const OpView& view) {
  return view.op.sums == SumsAt::kBefore ? "... -> ..." : "... -> ... | partial: 0";
}

std::span<const OpRow> reshape_rows() {
  static const std::vector<OpRow> rows = {
      {.type = "Reshape",
       .rule = reshape_rule,
       .work = view_work,
       .grad = reshape_grad,
       .operands = operand_bits({1}),
       .rewrite = set_target,
       .exact_on_integers = true},
      {.type = "Flatten",
       .rule = reshape_rule,
       .work = view_work,
       .grad = reshape_grad,
       .exact_on_integers = true},
      {.type = "Squeeze",
       .rule = reshape_rule,
       .work = view_work,
       .grad = reshape_grad,
       .operands = operand_bits({1}),
       .rewrite = set_squeezed_axes,
       .exact_on_integers = true},
      {.type = "Unsqueeze",
       .rule = reshape_rule,
       .work = view_work,
       .grad = reshape_grad,
       .operands = operand_bits({1}),
       .exact_on_integers = true},
      {.type = "Identity",
       .rule = sums_on_rule,
       .work = view_work,
       .grad_text = "g",
       .exact_on_integers = true},
      {.type = "DepthToSpace",
       .rule = depth_to_space_rule,
       .flops_per_element = 0,
       .grad = depth_to_space_grad,
       .exact_on_integers = true},
      {.type = "SpaceToDepth",
       .rule = space_to_depth_rule,
       .flops_per_element = 0,
       .grad = space_to_depth_grad,
       .exact_on_integers = true},
  };
  return rows;
}

}  // namespace autopar
