// The gradient of LSTM, rows of weights in the order i, o, f, c:
//   i, f = s(.. + p C_(t-1)), c = g(..), C_t = f C_(t-1) + i c, o = s(.. + p_o C_t), H_t = o h(C_t)
// Only the cells are computed step by step. All that multiplies gradients in a backward step is
// known before, for all steps: with dC the gradient of C_t,
//   dC += dH (o h' + p_o h o'), gates = (dC, dH, dC, dC) * factors,
//   dC_(t-1) = dC (f + p_i c i' + p_f C_(t-1) f'), dH_(t-1) = gates R
#include <algorithm>

#include "ops/grads/recurrent.hpp"

namespace autopar {
namespace {

class CellGrad {
 public:
  CellGrad(const Recurrence& all, std::size_t number, const CellActivation* activations)
      : all_(all),
        to_(all.to),
        context_(all.context),
        direction_(all, number),
        activations_(activations) {}

  DirectionGrads run() {
    sum_gates();
    find_cells();
    find_factors();
    return backward();
  }

 private:
  ValueId rows(ValueId from, std::int64_t gate) const {
    return to_.slice(from, to_.rank(from) - 1, gate * all_.hidden, (gate + 1) * all_.hidden);
  }

  void sum_gates() {
    const std::int64_t n = 4 * all_.hidden;
    states_ = direction_.before(direction_.outputs(), direction_.state(5));
    recurrent_ = direction_.part(2);
    ValueId sum = all_.plus(all_.product({{all_.x, "tbi"}, {direction_.part(1), "gi"}}, "tbg", n),
                            all_.product({{states_, "tbh"}, {recurrent_, "gh"}}, "tbg", n));
    if (context_.in(3).valid()) {
      const ValueId bias = direction_.part(3);
      sum = all_.plus(sum, all_.plus(to_.slice(bias, 0, 0, n), to_.slice(bias, 0, n, 2 * n)));
    }
    for (std::int64_t gate = 0; gate < 4; ++gate) sums_.push_back(rows(sum, gate));
    if (context_.in(7).valid()) {
      const ValueId peepholes = direction_.part(7);
      for (std::int64_t gate = 0; gate < 3; ++gate) peepholes_.push_back(rows(peepholes, gate));
    }
  }

  ValueId peeped(ValueId sum, std::size_t gate, ValueId cells) const {
    return peepholes_.empty() ? sum : all_.plus(sum, all_.times(peepholes_[gate], cells));
  }
  Gate sigmoid(ValueId from) const { return gate_of(all_, activations_[0], from); }

  void find_cells() {
    const ValueId initial = direction_.state(6);
    new_ = gate_of(all_, activations_[1], sums_[3]);
    std::vector<ValueId> forget, added, input, fresh, taken;
    if (peepholes_.empty()) {
      in_ = sigmoid(sums_[0]);
      forget_ = sigmoid(sums_[2]);
      forget = all_.steps(all_.where_counted(forget_.value, 1));
      added = all_.steps(all_.where_counted(all_.times(in_.value, new_.value), 0));
    } else {
      forget = all_.steps(sums_[2]);
      input = all_.steps(sums_[0]);
      fresh = all_.steps(new_.value);
    }
    const std::vector<ValueId> counted = all_.counted.valid() && !peepholes_.empty()
                                             ? all_.steps(all_.counted)
                                             : std::vector<ValueId>();
    ValueId cell = initial;
    for (std::size_t t : direction_.order()) {
      if (peepholes_.empty()) {
        cell = all_.plus(all_.times(forget[t], cell), added[t]);
      } else {
        const ValueId i = sigmoid(peeped(input[t], 0, cell)).value;
        const ValueId f = sigmoid(peeped(forget[t], 2, cell)).value;
        const ValueId next = all_.plus(all_.times(f, cell), all_.times(i, fresh[t]));
        cell = counted.empty() ? next : to_.pointwise("Where", {counted[t], next, cell});
      }
      taken.push_back(cell);
    }
    cells_ = direction_.in_time_order(taken);
    cells_before_ = direction_.before(cells_, initial);
    if (!peepholes_.empty()) {
      in_ = sigmoid(peeped(sums_[0], 0, cells_before_));
      forget_ = sigmoid(peeped(sums_[2], 2, cells_before_));
    }
  }

  void find_factors() {
    const Gate out = sigmoid(peeped(sums_[1], 1, cells_));
    const ValueId hidden = activations_[2].value(to_, cells_);
    const ValueId hidden_slope = activations_[2].slope(to_, cells_, hidden);
    const ValueId of_in = all_.times(new_.value, in_.slope);
    const ValueId of_out = all_.times(hidden, out.slope);
    const ValueId of_forget = all_.times(cells_before_, forget_.slope);
    const ValueId of_new = all_.times(in_.value, new_.slope);
    ValueId to_cell = all_.times(out.value, hidden_slope);
    ValueId kept = forget_.value;
    if (!peepholes_.empty()) {
      to_cell = all_.plus(to_cell, all_.times(of_out, peepholes_[1]));
      kept = all_.plus(kept, all_.times(of_in, peepholes_[0]));
      kept = all_.plus(kept, all_.times(of_forget, peepholes_[2]));
    }
    factors_ = all_.where_counted(to_.concat({of_in, of_out, of_forget, of_new}, 2), 0);
    to_cell_ = all_.where_counted(to_cell, 0);
    kept_ = all_.where_counted(kept, 1);
  }

  DirectionGrads backward() {
    const std::vector<ValueId> factors = all_.steps(factors_), to_cell = all_.steps(to_cell_),
                               kept = all_.steps(kept_);
    const ValueId from_outputs = direction_.outputs_grad();
    std::vector<ValueId> given, skipped, taken;
    if (from_outputs.valid()) given = all_.steps(from_outputs);
    if (all_.counted.valid()) {
      skipped = all_.steps(to_.pointwise("Where", {all_.counted, all_.number(0), all_.number(1)}));
    }
    ValueId hidden = direction_.final_grad(1), cell = direction_.final_grad(2);
    const std::vector<std::size_t> order = direction_.order();
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::size_t t = order[i];
      hidden = all_.plus(hidden, given.empty() ? ValueId() : given[t]);
      if (!hidden.valid()) hidden = to_.filled(all_.dtype, {1, all_.batch, all_.hidden}, 0);
      cell = all_.plus(cell, all_.times(hidden, to_cell[t]));
      taken.push_back(all_.times(to_.concat({cell, hidden, cell, cell}, 2), factors[t]));
      cell = all_.times(cell, kept[t]);
      const ValueId through = to_.matmul(taken.back(), recurrent_);
      hidden = skipped.empty() ? through : all_.plus(through, all_.times(hidden, skipped[t]));
    }
    std::reverse(taken.begin(), taken.end());
    const ValueId gates = direction_.in_time_order(taken);
    DirectionGrads grads = gate_grads(direction_, gates, states_);
    grads.initial_hidden = hidden;
    grads.initial_cell = cell;
    if (context_.wants(7)) {
      const auto sum = [&](std::int64_t gate, ValueId cells) {
        return to_.reduce("ReduceSum", all_.times(rows(gates, gate), cells), {0, 1}, false);
      };
      grads.peepholes =
          to_.concat({sum(0, cells_before_), sum(1, cells_), sum(2, cells_before_)}, 0);
    }
    return grads;
  }

  const Recurrence& all_;
  GraphBuilder& to_;
  const GradContext& context_;
  const Direction direction_;
  const CellActivation* activations_;  // f, g, h
  ValueId states_, recurrent_;
  std::vector<ValueId> sums_, peepholes_;  // of the gates, without peepholes; i, o, f
  Gate in_, forget_, new_;
  ValueId cells_, cells_before_;
  ValueId factors_, to_cell_, kept_;
};

}  // namespace

Result<InputGrads> lstm_grad(const GradContext& context) {
  if (!context.grad(0).valid() && !context.grad(1).valid() && !context.grad(2).valid()) {
    return InputGrads(context.op.inputs.size());
  }
  if (context.op.int_attribute("input_forget", 0) != 0) {
    return no_gradient(context, "where input and forget gate are one (input_forget)");
  }
  const Recurrence all(context);
  const auto activations =
      cell_activations(context.op, {"Sigmoid", "Tanh", "Tanh"}, all.directions);
  if (!activations) return no_gradient(context, "where an activation is not known");
  std::vector<DirectionGrads> parts;
  for (std::size_t d = 0; d < all.directions; ++d) {
    parts.push_back(CellGrad(all, d, activations->data() + 3 * d).run());
  }
  return joined(all, parts);
}

}  // namespace autopar
