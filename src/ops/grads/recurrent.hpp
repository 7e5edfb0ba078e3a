// What the gradients of LSTM, GRU and RNN have in common. All gates are computed again at once from
// the inputs and the outputs of the steps before; what goes backward step by step is the gradient
// of the state alone, and gradients of weights and inputs are made of all steps together.
//
// Tensors over time are [time, batch, ..] whatever the op's layout, a step's are [1, batch, ..].
#pragma once

#include <string>
#include <vector>

#include "ops/grads/cell_activation.hpp"
#include "ops/grads/contract.hpp"
#include "ops/grads/grads.hpp"

namespace autopar {

// The inputs and gradients of a recurrent op, one direction after the other.
struct Recurrence {
  explicit Recurrence(const GradContext& context);

  const GradContext& context;
  GraphBuilder& to;
  const bool batch_first;
  const std::string direction;
  std::int64_t time = 0, batch = 0, input = 0, hidden = 0;
  std::size_t directions = 1;
  DType dtype;
  ValueId x;        // [time, batch, input]
  ValueId y;        // [time, directions, batch, hidden]
  ValueId counted;  // bool [time, batch, 1]; invalid: all steps of all samples

  ValueId number(double n) const { return to.scalar(dtype, n); }
  ValueId plus(ValueId a, ValueId b) const;  // either may be invalid: zero
  ValueId times(ValueId a, ValueId b) const { return to.pointwise("Mul", {a, b}); }
  // Sums of products over t (time), b (batch), i (input), h (hidden), g (rows of gates).
  ValueId product(const std::vector<Lettered>& operands, const std::string& letters,
                  std::int64_t rows) const;
  std::vector<ValueId> steps(ValueId over_time) const;
  // `value` where a step counts, else `otherwise`.
  ValueId where_counted(ValueId value, double otherwise) const;
};

// One direction.
struct Direction {
  Direction(const Recurrence& all, std::size_t number);

  const Recurrence& all;
  std::size_t number;
  bool reverse;

  // Of a weight, a bias, a state [directions, ..]: this direction's part without that dimension.
  ValueId part(std::size_t port) const;
  ValueId state(std::size_t port) const;         // [1, batch, hidden]; zeros where absent
  ValueId final_grad(std::size_t output) const;  // [1, batch, hidden]; invalid: zero
  ValueId outputs() const;                       // [time, batch, hidden]
  ValueId outputs_grad() const;                  // the same; invalid: zero
  // States before each step: those after the step before, `initial` before the first.
  ValueId before(ValueId states, ValueId initial) const;
  // The steps in the order in which they were taken.
  std::vector<std::size_t> order() const;
  ValueId in_time_order(std::vector<ValueId> taken) const;  // concatenated
};

// dL/d of the direction's inputs; those that are absent or not wanted may be invalid.
struct DirectionGrads {
  ValueId x;                             // [time, batch, input]
  ValueId weights, recurrent_weights;    // [gates, input], [gates, hidden]
  ValueId bias;                          // [2 gates]
  ValueId initial_hidden, initial_cell;  // [1, batch, hidden]
  ValueId peepholes;                     // [3 hidden]
};

// Gradients of x, weights and biases from those of the gates before their activations, as seen from
// the input (`gates`) and, where they differ, from the state before.
DirectionGrads gate_grads(const Direction& direction, ValueId gates, ValueId states_before);

// All directions' together, as gradients of the op's inputs. Cells: initial_c and P are there, too.
InputGrads joined(const Recurrence& all, const std::vector<DirectionGrads>& parts);

// The activation of what is clipped before, and its derivative.
struct Gate {
  ValueId value, slope;
};
Gate gate_of(const Recurrence& all, const CellActivation& activation, ValueId from);

}  // namespace autopar
