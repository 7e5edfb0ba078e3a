// The gradient of GRU, rows of weights in the order z, r, h:
//   H_t = (1 - z) h + z H_(t-1), z, r = s(..), h = g(X W^T + b + r (H_(t-1) R^T + c))
// with linear_before_reset, else h = g(X W^T + b + (r H_(t-1)) R^T + c).
#include <algorithm>

#include "ops/grads/recurrent.hpp"

namespace autopar {
namespace {

class GatedGrad {
 public:
  GatedGrad(const Recurrence& all, std::size_t number, const CellActivation* activations)
      : all_(all),
        to_(all.to),
        context_(all.context),
        direction_(all, number),
        activations_(activations),
        linear_(all.context.op.int_attribute("linear_before_reset", 0) != 0),
        n_(all.hidden) {}

  DirectionGrads run() {
    find_gates();
    backward();
    DirectionGrads grads;
    if (linear_) {
      linear_grads(grads);
    } else {
      reset_grads(grads);
    }
    grads.initial_hidden = carried_;
    return grads;
  }

 private:
  ValueId rows(ValueId from, std::int64_t begin, std::int64_t end) const {
    return to_.slice(from, to_.rank(from) - 1, begin * n_, end * n_);
  }
  ValueId bias(std::int64_t begin, std::int64_t end) const {
    if (!context_.in(3).valid()) return ValueId();
    return to_.slice(direction_.part(3), 0, begin * n_, end * n_);
  }
  ValueId recurrent(ValueId states, ValueId weights) const {
    return all_.product({{states, "tbh"}, {weights, "gh"}}, "tbg", to_.shape(weights)[0]);
  }

  void find_gates() {
    states_ = direction_.before(direction_.outputs(), direction_.state(5));
    weights_ = direction_.part(2);
    gate_weights_ = to_.slice(weights_, 0, 0, 2 * n_);
    new_weights_ = to_.slice(weights_, 0, 2 * n_, 3 * n_);
    const ValueId seen = all_.plus(
        all_.product({{all_.x, "tbi"}, {direction_.part(1), "gi"}}, "tbg", 3 * n_), bias(0, 3));
    const ValueId two =
        all_.plus(all_.plus(rows(seen, 0, 2), recurrent(states_, gate_weights_)), bias(3, 5));
    update_ = gate_of(all_, activations_[0], rows(two, 0, 1));
    reset_ = gate_of(all_, activations_[0], rows(two, 1, 2));
    if (linear_) {
      inner_ = all_.plus(recurrent(states_, new_weights_), bias(5, 6));
      new_ = gate_of(all_, activations_[1],
                     all_.plus(rows(seen, 2, 3), all_.times(reset_.value, inner_)));
    } else {
      inner_ = all_.times(reset_.value, states_);
      const ValueId sum = all_.plus(rows(seen, 2, 3), recurrent(inner_, new_weights_));
      new_ = gate_of(all_, activations_[1], all_.plus(sum, bias(5, 6)));
    }
    const ValueId rest = to_.pointwise("Sub", {all_.number(1), update_.value});
    of_update_ = all_.times(to_.pointwise("Sub", {states_, new_.value}), update_.slope);
    of_update_ = all_.where_counted(of_update_, 0);
    of_new_ = all_.where_counted(all_.times(rest, new_.slope), 0);
    kept_ = all_.where_counted(update_.value, 1);
  }

  // Per step the gradient of the state, and what the recurrent weights are multiplied by.
  void backward() {
    std::vector<ValueId> given, states, gates;
    const ValueId from_outputs = direction_.outputs_grad();
    if (from_outputs.valid()) given = all_.steps(from_outputs);
    const std::vector<ValueId> kept = all_.steps(kept_);
    std::vector<ValueId> factors, of_new, of_update, of_reset, reset;
    if (linear_) {
      const ValueId through = all_.times(all_.times(of_new_, inner_), reset_.slope);
      factors = all_.steps(to_.concat({of_update_, through, all_.times(of_new_, reset_.value)}, 2));
    } else {
      of_new = all_.steps(of_new_);
      of_update = all_.steps(of_update_);
      of_reset = all_.steps(all_.times(states_, reset_.slope));
      reset = all_.steps(reset_.value);
    }
    carried_ = direction_.final_grad(1);
    const std::vector<std::size_t> order = direction_.order();
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::size_t t = order[i];
      const ValueId state = all_.plus(carried_, given.empty() ? ValueId() : given[t]);
      ValueId back = all_.times(state, kept[t]);
      if (linear_) {
        gates.push_back(all_.times(to_.concat({state, state, state}, 2), factors[t]));
        back = all_.plus(back, to_.matmul(gates.back(), weights_));
      } else {
        const ValueId fresh = all_.times(state, of_new[t]);
        const ValueId inner = to_.matmul(fresh, new_weights_);
        const ValueId two =
            to_.concat({all_.times(state, of_update[t]), all_.times(inner, of_reset[t])}, 2);
        back = all_.plus(back, all_.times(inner, reset[t]));
        back = all_.plus(back, to_.matmul(two, gate_weights_));
        gates.push_back(to_.concat({two, fresh}, 2));
      }
      states.push_back(state);
      carried_ = back;
    }
    std::reverse(states.begin(), states.end());
    std::reverse(gates.begin(), gates.end());
    state_grads_ = direction_.in_time_order(states);
    gate_grads_ = direction_.in_time_order(gates);
  }

  // What the candidate got before the reset gate is another gradient than what its input got.
  void linear_grads(DirectionGrads& grads) {
    const ValueId fresh = all_.times(state_grads_, of_new_);
    const ValueId seen = to_.concat({rows(gate_grads_, 0, 2), fresh}, 2);
    grads = gate_grads(direction_, seen, ValueId());
    if (context_.wants(2)) {
      grads.recurrent_weights =
          all_.product({{gate_grads_, "tbg"}, {states_, "tbh"}}, "gh", 3 * n_);
    }
    if (context_.wants(3)) {
      grads.bias = to_.concat({to_.reduce("ReduceSum", seen, {0, 1}, false),
                               to_.reduce("ReduceSum", gate_grads_, {0, 1}, false)},
                              0);
    }
  }

  void reset_grads(DirectionGrads& grads) {
    grads = gate_grads(direction_, gate_grads_, ValueId());
    if (!context_.wants(2)) return;
    const ValueId two =
        all_.product({{rows(gate_grads_, 0, 2), "tbg"}, {states_, "tbh"}}, "gh", 2 * n_);
    const ValueId fresh =
        all_.product({{rows(gate_grads_, 2, 3), "tbg"}, {inner_, "tbh"}}, "gh", n_);
    grads.recurrent_weights = to_.concat({two, fresh}, 0);
  }

  const Recurrence& all_;
  GraphBuilder& to_;
  const GradContext& context_;
  const Direction direction_;
  const CellActivation* activations_;  // f, g
  const bool linear_;                  // the reset gate comes after the recurrent weights
  const std::int64_t n_;
  ValueId states_;  // before each step
  ValueId weights_, gate_weights_, new_weights_;
  Gate update_, reset_, new_;
  ValueId inner_;  // what the reset gate multiplies, or has multiplied
  ValueId of_update_, of_new_, kept_;
  ValueId state_grads_, gate_grads_, carried_;
};

}  // namespace

Result<InputGrads> gru_grad(const GradContext& context) {
  if (!context.grad(0).valid() && !context.grad(1).valid()) {
    return InputGrads(context.op.inputs.size());
  }
  const Recurrence all(context);
  const auto activations = cell_activations(context.op, {"Sigmoid", "Tanh"}, all.directions);
  if (!activations) return no_gradient(context, "where an activation is not known");
  std::vector<DirectionGrads> parts;
  for (std::size_t d = 0; d < all.directions; ++d) {
    parts.push_back(GatedGrad(all, d, activations->data() + 2 * d).run());
  }
  return joined(all, parts);
}

}  // namespace autopar
