// The op table. An op's rule names its loop dimensions (factors) and says which dimension of which
// tensor each one is; everything else (candidates, specs, local shapes, collectives) follows.
//
//   MatMul of [8,64,32] x [32,16]:  "b m k+, k+ n -> b m n | partial: 0, 1"
//   assignment {ib: m, nvlink: k} on ib=2 x nvlink=4: inputs [{},{ib},{nvlink}], [{nvlink},{}];
//   output [{},{ib},{}] +{nvlink}.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autopar/ir.hpp"
#include "autopar/layout.hpp"

namespace autopar {

enum class FactorKind : std::uint8_t {
  kParallel,  // splitting it splits every tensor that has it; no communication
  kSum,       // a contraction: outputs without it become partial sums          mark k+
  kMax,       // outputs without it become partial maxima                       mark k>
  kMin,       // outputs without it become partial minima                       mark k<
  kExchange,  // may be split, but the ranks exchange data inside the op (softmax over it)  mark k~
  kHalo,      // a part also reads rows of its neighbours (a Conv over an image)  "| halo k: 1 1"
  kPartial,   // no loop dimension: a partial sum passes through a linear op    "| partial: 0 1, 2"
  kMoving,    // no loop dimension: an axis of it splits one factor here and another there, and the
              // ranks pass their parts round during the op  "| moving row col: m k, k n -> m n"
  kWhole,     // must not be split                                              mark k^
};

struct Factor {
  std::string name;  // unique in the rule; kPartial: "partial" + first input, as in "partial0"
  std::int64_t size = 1;
  FactorKind kind = FactorKind::kParallel;
  // Inputs that are partial sums over the axes of this factor. kPartial: the inputs in which the op
  // is (jointly) linear. kSum: summands without the factor, such as the bias of a Conv.
  std::vector<int> partial_inputs;
  // kHalo: how many rows next to its own part a rank needs of the ranks before and after it, in
  // elements of the input dimension that the factor leads. No part may be smaller than that.
  std::int64_t halo_before = 0, halo_after = 0;
  // kMoving: per input and per output the factor whose dimension is split there; -1: none. Factors
  // that move with each other have the same `moves_with`, the first of them, and are all
  // split into as many parts, each by one axis, or none is.
  std::vector<int> moving_inputs = {}, moving_outputs = {};
  int moves_with = -1;
  bool operator==(const Factor&) const = default;
};

// Per dimension of a tensor the factors that make it up, major first. Empty: a dimension of size 1,
// or one that no factor describes (it stays whole). A dimension whose factors' sizes do not
// multiply to its extent is an error.
using TensorFactors = std::vector<std::vector<int>>;
bool mentions(const TensorFactors& tensor, int factor);

struct Rule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> inputs;   // one per input; absent optional inputs: empty
  std::vector<TensorFactors> outputs;  // one per output
  bool operator==(const Rule&) const = default;

  int factor_index(const std::string& name) const;  // -1: no such factor
};
// Text form and back. A dimension is a factor, "(a b)" for several, or "_" for none. `shapes` give
// sizes; "..." stands for the leading dimensions that are left, aligned from the right with those
// of the other tensors (broadcast: size-1 or missing dimensions have no factor). "a=2" says a size
// that no shape tells. After "|": "partial: 0 1, 2" (inputs in which the op is linear, jointly in
// 0 and 1), "summand k: 2" (inputs that are summands of the sum over k), "halo s: 2 1" (a part of s
// needs two rows of the part before it and one of the part after), "moving row col: m k, k n -> m
// n" (per tensor the factor that an axis of row, and of col, splits). Grammar:
// src/ops/rule_pattern.hpp.
std::string to_text(const Rule& rule);
struct OpShapes {
  std::vector<Shape> inputs, outputs;
  std::vector<DType> input_dtypes, output_dtypes;
};
OpShapes shapes_of(const Graph& graph, const Op& op);
Result<Rule> parse_rule(const std::string& text, const OpShapes& shapes);

// Whether a rule fits the shapes and says what becomes of every factor: extents are the products of
// their factors; a parallel factor is in every output; nothing is a summand that has the factor.
Status verify(const Rule& rule, const OpShapes& shapes);

// Rules that a user states for ops without one: lines `OpType "rule text"`, `#` comments.
struct UserRules {
  std::map<std::string, std::string> text_of_type;  // "Domain::Type" for other domains
};
Result<UserRules> parse_user_rules(const std::string& text, const std::string& file);

// The rule of an op; user rules win. Ops without a rule: one in which every dimension is whole
// (`replicated_rule`), with `has_rule` false so that the caller can warn.
struct RuleOf {
  Rule rule;
  bool has_rule = true;
};
Result<RuleOf> rule_of(const Graph& graph, const Op& op, const UserRules& user = {});
Rule replicated_rule(const OpShapes& shapes);

// For one op: mesh axis -> factor index, -1 for none (the axis replicates the op).
struct Assignment {
  std::vector<int> factor_of_axis;
  auto operator<=>(const Assignment&) const = default;
};
std::string to_text(const Assignment& assignment, const Rule& rule, const Mesh& mesh);  // "ib:m"

// What the tensors of an op lie like under an assignment.
struct OpSpecs {
  std::vector<Spec> inputs;   // as the op needs them; absent inputs: rank-0 spec
  std::vector<Spec> outputs;  // as the op leaves them (maybe partial)
};
// Within a factor axes go in mesh order; in a dimension of several factors, major factor first.
// Nothing where the assignment is not valid: a factor not divisible, a minor factor split while a
// major one is not down to 1 in some tensor, a kWhole factor split, a part smaller than its halo,
// axis sizes do not fit.
std::optional<OpSpecs> specs_of(const Rule& rule, const Assignment& assignment, const Mesh& mesh);
// All valid assignments. Order: lexicographic with factor 0 before factor 1 ... before none, the
// outermost axis first. The all-none assignment is always there, last.
// Without those in which parts move between the ranks, which moving_candidates() gives, in order.
std::vector<Assignment> candidates(const Rule& rule, const Mesh& mesh);
std::vector<Assignment> moving_candidates(const Rule& rule, const Mesh& mesh);
// Whether an axis is of a kMoving factor; and how many factors are of other kinds.
bool is_moving(const Rule& rule, const Assignment& assignment);
std::size_t resting_factors(const Rule& rule);
// MindSpore's strategy: slices of every dimension of every input (or output).
std::vector<std::vector<std::int64_t>> strategy_of(const std::vector<Spec>& specs,
                                                   const Mesh& mesh);

double bytes_of(const Shape& shape, DType dtype);
// Arithmetic and memory traffic of one op on given shapes (global or local alike).
struct Work {
  Flops flops = 0;
  double bytes = 0;  // read + written, device memory
};
// Reshape-like ops that move nothing (Reshape, Squeeze, Unsqueeze, Identity, Flatten) are free.
Work work_of(const Op& op, const OpShapes& shapes);

// What an op becomes on a rank: appends to `program` and returns the outputs (local shapes).
// Usually the op itself with local shapes and rewritten shape constants (Reshape targets, Expand
// shapes, Split sizes, Slice bounds, group counts); some ops become a few. Collectives inside
// (split softmax, halos) are ops of the domain ai.autopar with attributes `axes` (mesh axis
// indices, ints), `axis` and `reduce_op`, not lowered yet; rank-dependent numbers come from
// ShardSlice of a constant.
struct LocalContext {
  const Graph& graph;
  const Op& op;
  const Rule& rule;
  const Assignment& assignment;
  const OpSpecs& specs;
  const Mesh& mesh;
  Graph& program;
  Names& value_names;                     // of `program`
  Names& op_names;                        // of `program`
  std::vector<ValueId> inputs;            // in `program`, lying as specs.inputs says
  std::vector<std::string> output_names;  // names for the outputs; "" where absent
};
Result<std::vector<ValueId>> localise(const LocalContext& context);
// True where localise() gives just the op itself on local shapes, so that work_of the local shapes
// is all there is to price.
bool is_plain_local(const Graph& graph, const Op& op, const Rule& rule,
                    const Assignment& assignment);

// Whether the op sums products: MatMul, Conv, Attention and their kin.
bool is_contraction(const Op& op);

// Whether the op draws random numbers, a Dropout that may train among them.
bool is_random(const Op& op);
// Gives random ops without a seed the one that they have in the programs of ranks, so that the
// graph draws what those draw.
void seed_random_ops(Graph& graph);

// Whether the op's output is its first input in the same memory (Reshape and its kin).
bool is_view(const Op& op);
// Whether each element of the outputs is made of the elements at the same place, with broadcasting.
bool is_on_elements(const Op& op);

// Inputs that only describe the op (axes, shapes, k): constants, always replicated.
bool is_operand_constant(const Op& op, std::size_t port);
// Adds an abstract collective to a program. `kind` is an ai.autopar op type.
// `stem` names the output and the op (made unique). AllToAll also takes `concat_axis`.
struct AbstractCollective {
  std::string type;        // "AllGather"
  std::vector<int> axes;   // mesh axes, group order
  std::int64_t axis = -1;  // split axis of AllToAll
  std::int64_t concat_axis = -1;
  std::string reduce_op;   // "" where the type has none
  std::int64_t root = -1;  // Broadcast: position in the group
  std::int64_t shift = 0;  // Permute: positions
};
ValueId add_collective(Graph& program, Names& value_names, Names& op_names,
                       const AbstractCollective& collective, ValueId input,
                       const Shape& output_shape, const std::string& stem);

}  // namespace autopar
