// The op table: one row per op type, grouped in files by family. To add an op, add a row.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "autopar/gradient.hpp"
#include "autopar/ops.hpp"

namespace autopar {

// One op with all that its rule may depend on.
struct OpView {
  const Graph& graph;
  const Op& op;
  const OpShapes& shapes;

  const Shape& in(std::size_t i) const;   // empty where absent
  const Shape& out(std::size_t i) const;  // empty where absent
  // An axis attribute counted from 0; nothing where it is out of range.
  std::optional<std::size_t> axis(const std::string& name, std::int64_t fallback,
                                  std::size_t rank) const;
};

// The text of an op's rule; nothing where this instance of the op has none.
using RuleText = std::optional<std::string>;
using RuleFunction = RuleText (*)(const OpView&);
using WorkFunction = Work (*)(const Op&, const OpShapes&);
// Adapts the copy of an op that runs on a rank: attributes, shape constants.
using RewriteFunction = void (*)(const LocalContext&, Op&);
using LocaliseFunction = Result<std::vector<ValueId>> (*)(const LocalContext&);

struct OpRow {
  const char* type;
  const char* text = nullptr;  // the rule, or
  RuleFunction rule = nullptr;
  double flops_per_element = 1;  // of the largest tensor, where `work` is not set
  WorkFunction work = nullptr;
  // The gradient: a formula per input (see ops/grads/grads.hpp), or a function; neither: none.
  const char* grad_text = nullptr;
  GradFunction grad = nullptr;
  std::uint32_t operands = 0;  // bit i: input i only describes the op (axes, shapes, k)
  RewriteFunction rewrite = nullptr;
  // Where a kSum, kMax, kMin or kExchange factor is split, this makes the local form.
  LocaliseFunction split = nullptr;
  // The same where a kHalo factor is split.
  LocaliseFunction halo = nullptr;
  // The same where kMoving factors are split, whatever else is.
  LocaliseFunction moving = nullptr;
  bool exact_on_integers = false;  // partial sums of integers pass through, too
};

constexpr std::uint32_t operand_bits(std::initializer_list<int> ports) {
  std::uint32_t bits = 0;
  for (int port : ports) bits |= std::uint32_t{1} << port;
  return bits;
}

// Every tensor that is not an operand is read or written once; flops are left to the caller.
Work streaming_work(const Op& op, const OpShapes& shapes);
// And the products of what is last in the first input.
Work matmul_work(const Op& op, const OpShapes& shapes);
const Shape& shape_at(const std::vector<Shape>& shapes, std::size_t i);  // empty where absent
double elements_of(const std::vector<Shape>& shapes, std::size_t i);     // 1 where absent
// Of what hands partial sums on, unless the op says that they become whole before it.
RuleText sums_on_rule(const OpView& view);
// No work: a view of the same memory.
Work view_work(const Op& op, const OpShapes& shapes);
// Moves what it outputs, whatever the size of the input.
Work gather_work(const Op& op, const OpShapes& shapes);

// The product of two matrices whose parts are passed round (summa.cpp).
Result<std::vector<ValueId>> move_products(const LocalContext& context);
// Attention whose keys and values go round a ring (ring.cpp).
Result<std::vector<ValueId>> ring_attention(const LocalContext& context);

// Devices that make the same random tensor make it alike.
void set_common_seed(const LocalContext& context, Op& op);

// The row of an op of ONNX's default domain; null for others.
const OpRow* find_row(const Op& op);
// is_operand_constant() of an op with this row.
bool is_operand(const OpRow* row, std::size_t port);

std::span<const OpRow> elementwise_rows();
std::span<const OpRow> contraction_rows();
std::span<const OpRow> convolution_rows();
std::span<const OpRow> pooling_rows();
std::span<const OpRow> reduction_rows();
std::span<const OpRow> reshape_rows();
std::span<const OpRow> movement_rows();
std::span<const OpRow> softmax_rows();
std::span<const OpRow> normalisation_rows();
std::span<const OpRow> gather_rows();
std::span<const OpRow> scatter_rows();
std::span<const OpRow> scan_rows();
std::span<const OpRow> attention_rows();
std::span<const OpRow> loss_rows();
std::span<const OpRow> generator_rows();
std::span<const OpRow> recurrent_rows();
std::span<const OpRow> quantisation_rows();

// Pieces of rule texts: {"d0", "d1", "d2"}, and words with spaces between.
std::vector<std::string> dim_names(std::size_t rank, const std::string& stem = "d");
std::string join(const std::vector<std::string>& words);
std::string whole_dims(std::size_t rank);  // "_ _ _"
// " _ _": the dimensions from `first` on.
std::string whole_from(std::size_t first, const Shape& shape);
// Counted from 0 where in range.
std::optional<std::size_t> normal_axis(std::int64_t axis, std::size_t rank);

}  // namespace autopar
