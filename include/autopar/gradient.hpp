// Gradients of ops: for every op type a vector-Jacobian product as a small graph, beside its rule
// in the op table. Which op's gradient is asked for when, and what is summed, is the business of
// autopar/grad.hpp.
//
//   Tanh, y = tanh(x), g = dL/dy:  text "g * (1 - y * y)"  ->  Mul, Sub, Mul appended to the graph
#pragma once

#include <string>
#include <vector>

#include "autopar/builder.hpp"

namespace autopar {

// One op whose gradient is wanted. Inputs, outputs and gradients are values of the builder's graph;
// what is computed again from them is appended there.
struct GradContext {
  GraphBuilder& to;
  const Op op;    // a copy: the graph's list of ops grows meanwhile
  const OpId id;  // of the op itself
  // dL/d(output), of the shape and type of that output; invalid: zero everywhere.
  std::vector<ValueId> output_grads;
  // Inputs whose gradient is asked for: floating point, and something wants it.
  std::vector<bool> wanted;

  ValueId in(std::size_t i) const { return op.has_input(i) ? op.inputs[i] : ValueId(); }
  ValueId out(std::size_t i) const { return op.has_output(i) ? op.outputs[i] : ValueId(); }
  ValueId grad(std::size_t i = 0) const {
    return i < output_grads.size() ? output_grads[i] : ValueId();
  }
  // An optional output that the forward op may lack; it gets it.
  ValueId output(std::size_t port, DType dtype, Shape shape) const {
    return to.output_of(id, port, dtype, std::move(shape));
  }
  bool wants(std::size_t i) const { return i < wanted.size() && wanted[i]; }
  Shape in_shape(std::size_t i) const { return to.shape(in(i)); }
  Shape out_shape(std::size_t i) const { return to.shape(out(i)); }
  // An axis attribute counted from 0.
  std::size_t axis(const std::string& name, std::int64_t fallback, std::size_t rank) const;
  // The integers of a constant input; nothing where it is absent.
  std::optional<std::vector<std::int64_t>> ints(std::size_t port) const {
    return constant_ints(to.graph(), op, port);
  }
};

// dL/d(input) per input, of the shape and type of that input; invalid: zero, or not wanted.
using InputGrads = std::vector<ValueId>;
using GradFunction = Result<InputGrads> (*)(const GradContext& context);

// Of the op that `context` is about. Errors (kInput): this op, or this form of it, has none; the
// message says why, not where.
Result<InputGrads> gradients_of(const GradContext& context);

// Whether the op table has a gradient for the type.
bool has_gradient(const Op& op);

}  // namespace autopar
