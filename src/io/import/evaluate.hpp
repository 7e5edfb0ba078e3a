// Constant folding: ONNX ops on small known tensors, for the ops that occur in shape arithmetic,
// masks, position ids and rotary tables. Needs no runtime; what it does not cover stays an op.
#pragma once

#include <optional>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// An output as inference sees it. Without a shape where that depends on the data (NonZero).
struct OutputType {
  DType dtype = DType::kFloat32;
  std::optional<Shape> shape;
};

struct OpEvaluation {
  const Op& op;                              // attributes; the ids are not read
  const std::vector<const Tensor*>& inputs;  // null: absent
  const std::vector<OutputType>& outputs;

  bool has_input(std::size_t i) const { return i < inputs.size() && inputs[i]; }
};
using Tensors = std::vector<Tensor>;

// Nothing where the op is not covered, an operand is out of range, or an output has more than
// `limit` bytes. Time and memory are linear in inputs and outputs (MatMul: in its products).
// Floating point is computed in double and rounded once per op.
std::optional<Tensors> evaluate(const OpEvaluation& evaluation, Bytes limit);

// The families; each returns nothing for an op type that is not its own.
std::optional<Tensors> evaluate_elementwise(const OpEvaluation& evaluation);
std::optional<Tensors> evaluate_movement(const OpEvaluation& evaluation);
std::optional<Tensors> evaluate_indexing(const OpEvaluation& evaluation);
std::optional<Tensors> evaluate_reduction(const OpEvaluation& evaluation);

}  // namespace autopar
