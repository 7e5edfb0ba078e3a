#include "ops/grads/recurrent.hpp"

#include <algorithm>
#include <numeric>

namespace autopar {

Recurrence::Recurrence(const GradContext& given)
    : context(given),
      to(given.to),
      batch_first(given.op.int_attribute("layout", 0) != 0),
      direction(given.op.string_attribute("direction", "forward")),
      dtype(given.to.dtype(given.in(0))) {
  const Shape whole = context.in_shape(0), recurrent = context.in_shape(2);
  time = whole[batch_first ? 1 : 0];
  batch = whole[batch_first ? 0 : 1];
  input = whole[2];
  hidden = recurrent[2];
  directions = static_cast<std::size_t>(recurrent[0]);
  x = batch_first ? to.transpose(context.in(0), {1, 0, 2}) : context.in(0);
  const std::int64_t d = recurrent[0];
  y = context.output(0, dtype,
                     batch_first ? Shape{batch, time, d, hidden} : Shape{time, d, batch, hidden});
  if (batch_first) y = to.transpose(y, {1, 2, 0, 3});
  if (context.in(4).valid()) {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(time));
    std::iota(numbers.begin(), numbers.end(), 0);
    const DType type = to.dtype(context.in(4));
    const ValueId step = to.cast(to.constant(int64_tensor({time, 1, 1}, numbers)), type);
    counted = to.test("Less", {step, to.reshape(context.in(4), {1, batch, 1})});
  }
}

ValueId Recurrence::plus(ValueId a, ValueId b) const {
  if (!a.valid()) return b;
  return b.valid() ? to.pointwise("Add", {a, b}) : a;
}

ValueId Recurrence::product(const std::vector<Lettered>& operands, const std::string& letters,
                            std::int64_t rows) const {
  const std::map<char, std::int64_t> extents = {
      {'t', time}, {'b', batch}, {'i', input}, {'h', hidden}, {'g', rows}};
  Shape shape;
  for (char letter : letters) shape.push_back(extents.at(letter));
  // Letters that do not occur would count as repeated.
  std::map<char, std::int64_t> used;
  for (const Lettered& operand : operands) {
    for (char letter : operand.letters) used[letter] = extents.at(letter);
  }
  return contract(to, operands, letters, used, shape);
}

std::vector<ValueId> Recurrence::steps(ValueId over_time) const {
  if (time == 1) return {over_time};
  Shape step = to.shape(over_time);
  step[0] = 1;
  const std::vector<GraphBuilder::Output> outputs(static_cast<std::size_t>(time),
                                                  {to.dtype(over_time), step});
  const ValueId sizes = to.ints(std::vector<std::int64_t>(static_cast<std::size_t>(time), 1));
  return to.add_all("Split", {over_time, sizes}, outputs, {{"axis", std::int64_t{0}}});
}

ValueId Recurrence::where_counted(ValueId value, double otherwise) const {
  if (!counted.valid()) return value;
  return to.pointwise("Where", {counted, value, number(otherwise)});
}

Direction::Direction(const Recurrence& whole, std::size_t index)
    : all(whole), number(index), reverse(whole.direction == "reverse" || index == 1) {}

ValueId Direction::part(std::size_t port) const {
  const auto at = static_cast<std::int64_t>(number);
  const ValueId own = all.to.slice(all.context.in(port), 0, at, at + 1);
  Shape shape = all.to.shape(own);
  shape.erase(shape.begin());
  return all.to.reshape(own, shape);
}

ValueId Direction::state(std::size_t port) const {
  if (!all.context.in(port).valid()) {
    return all.to.filled(all.dtype, {1, all.batch, all.hidden}, 0);
  }
  ValueId states = all.context.in(port);
  if (all.batch_first) states = all.to.transpose(states, {1, 0, 2});
  const auto at = static_cast<std::int64_t>(number);
  return all.to.slice(states, 0, at, at + 1);
}

ValueId Direction::final_grad(std::size_t output) const {
  ValueId grad = all.context.grad(output);
  if (!grad.valid()) return grad;
  if (all.batch_first) grad = all.to.transpose(grad, {1, 0, 2});
  const auto at = static_cast<std::int64_t>(number);
  return all.to.slice(grad, 0, at, at + 1);
}

ValueId Direction::outputs() const {
  const auto at = static_cast<std::int64_t>(number);
  return all.to.reshape(all.to.slice(all.y, 1, at, at + 1), {all.time, all.batch, all.hidden});
}

ValueId Direction::outputs_grad() const {
  ValueId grad = all.context.grad(0);
  if (!grad.valid()) return grad;
  if (all.batch_first) grad = all.to.transpose(grad, {1, 2, 0, 3});
  const auto at = static_cast<std::int64_t>(number);
  grad = all.to.reshape(all.to.slice(grad, 1, at, at + 1), {all.time, all.batch, all.hidden});
  // Outputs past a sample's end are zeros whatever happens.
  return all.where_counted(grad, 0);
}

ValueId Direction::before(ValueId states, ValueId initial) const {
  GraphBuilder& to = all.to;
  if (all.time == 1) return initial;
  if (!reverse) return to.concat({initial, to.slice(states, 0, 0, all.time - 1)}, 0);
  const ValueId shifted = to.concat({to.slice(states, 0, 1, all.time), initial}, 0);
  if (!all.counted.valid()) return shifted;
  // A shorter sample begins at its own end.
  const ValueId none = to.filled(DType::kBool, {1, all.batch, 1}, 0);
  const ValueId next = to.concat({to.slice(all.counted, 0, 1, all.time), none}, 0);
  return to.pointwise("Where", {next, shifted, initial});
}

std::vector<std::size_t> Direction::order() const {
  std::vector<std::size_t> order(static_cast<std::size_t>(all.time));
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (reverse) std::reverse(order.begin(), order.end());
  return order;
}

ValueId Direction::in_time_order(std::vector<ValueId> taken) const {
  if (reverse) std::reverse(taken.begin(), taken.end());
  return all.to.concat(taken, 0);
}

DirectionGrads gate_grads(const Direction& direction, ValueId gates, ValueId states_before) {
  const Recurrence& all = direction.all;
  const GradContext& context = all.context;
  const std::int64_t rows = all.to.shape(gates)[2];
  DirectionGrads grads;
  if (context.wants(0)) {
    grads.x = all.product({{gates, "tbg"}, {direction.part(1), "gi"}}, "tbi", rows);
  }
  if (context.wants(1)) grads.weights = all.product({{gates, "tbg"}, {all.x, "tbi"}}, "gi", rows);
  if (context.wants(2) && states_before.valid()) {
    grads.recurrent_weights = all.product({{gates, "tbg"}, {states_before, "tbh"}}, "gh", rows);
  }
  if (context.wants(3)) {
    const ValueId sum = all.to.reduce("ReduceSum", gates, {0, 1}, false);
    grads.bias = all.to.concat({sum, sum}, 0);
  }
  return grads;
}

InputGrads joined(const Recurrence& all, const std::vector<DirectionGrads>& parts) {
  GraphBuilder& to = all.to;
  const GradContext& context = all.context;
  InputGrads grads(context.op.inputs.size());
  for (const DirectionGrads& part : parts) {
    if (part.x.valid()) grads[0] = all.plus(grads[0], part.x);
  }
  if (grads[0].valid() && all.batch_first) grads[0] = to.transpose(grads[0], {1, 0, 2});
  const auto stack = [&](std::size_t port, ValueId DirectionGrads::*member) {
    if (!context.wants(port)) return;
    std::vector<ValueId> each;
    for (const DirectionGrads& part : parts) {
      if (!(part.*member).valid()) return;
      Shape shape = to.shape(part.*member);
      const bool state = port == 5 || port == 6;
      each.push_back(state ? part.*member : to.unsqueeze(part.*member, 0));
    }
    grads[port] = to.concat(each, 0);
    if ((port == 5 || port == 6) && all.batch_first) {
      grads[port] = to.transpose(grads[port], {1, 0, 2});
    }
  };
  stack(1, &DirectionGrads::weights);
  stack(2, &DirectionGrads::recurrent_weights);
  stack(3, &DirectionGrads::bias);
  stack(5, &DirectionGrads::initial_hidden);
  stack(6, &DirectionGrads::initial_cell);
  stack(7, &DirectionGrads::peepholes);
  return grads;
}

Gate gate_of(const Recurrence& all, const CellActivation& activation, ValueId from) {
  GraphBuilder& to = all.to;
  const double clip = all.context.op.float_attribute("clip", 0);
  if (clip <= 0) {
    const ValueId value = activation.value(to, from);
    return {value, activation.slope(to, from, value)};
  }
  const ValueId bound = all.number(clip);
  const ValueId inside = to.pointwise("Clip", {from, all.number(-clip), bound});
  const ValueId value = activation.value(to, inside);
  const ValueId cut = to.test("Greater", {to.pointwise("Abs", {from}), bound});
  return {value, to.pointwise("Where", {cut, all.number(0), activation.slope(to, inside, value)})};
}

// H_t = f(X_t W^T + H_(t-1) R^T + b)
Result<InputGrads> rnn_grad(const GradContext& context) {
  if (!context.grad(0).valid() && !context.grad(1).valid()) {
    return InputGrads(context.op.inputs.size());
  }
  const Recurrence all(context);
  const auto activations = cell_activations(context.op, {"Tanh"}, all.directions);
  if (!activations) return no_gradient(context, "where an activation is not known");
  GraphBuilder& to = all.to;
  std::vector<DirectionGrads> parts;
  for (std::size_t d = 0; d < all.directions; ++d) {
    const Direction direction(all, d);
    const ValueId initial = direction.state(5);
    const ValueId states = direction.before(direction.outputs(), initial);
    const ValueId recurrent = direction.part(2);
    ValueId sum =
        all.plus(all.product({{all.x, "tbi"}, {direction.part(1), "gi"}}, "tbg", all.hidden),
                 all.product({{states, "tbh"}, {recurrent, "gh"}}, "tbg", all.hidden));
    if (context.in(3).valid()) {
      const ValueId bias = direction.part(3);
      sum = all.plus(sum, all.plus(to.slice(bias, 0, 0, all.hidden),
                                   to.slice(bias, 0, all.hidden, 2 * all.hidden)));
    }
    const Gate gate = gate_of(all, (*activations)[d], sum);
    const std::vector<ValueId> slopes = all.steps(all.where_counted(gate.slope, 0));
    const ValueId from_outputs = direction.outputs_grad();
    std::vector<ValueId> given, skipped, taken;
    if (from_outputs.valid()) given = all.steps(from_outputs);
    if (all.counted.valid()) {
      const ValueId all_zero = to.scalar(all.dtype, 0);
      skipped = all.steps(to.pointwise("Where", {all.counted, all_zero, to.scalar(all.dtype, 1)}));
    }
    ValueId carried = direction.final_grad(1);
    std::vector<std::size_t> order = direction.order();
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::size_t t = order[i];
      ValueId state = all.plus(carried, given.empty() ? ValueId() : given[t]);
      taken.push_back(all.times(state, slopes[t]));
      carried = to.matmul(taken.back(), recurrent);
      if (!skipped.empty()) carried = all.plus(carried, all.times(state, skipped[t]));
    }
    std::reverse(taken.begin(), taken.end());
    DirectionGrads grads = gate_grads(direction, direction.in_time_order(taken), states);
    grads.initial_hidden = carried;
    parts.push_back(grads);
  }
  return joined(all, parts);
}

}  // namespace autopar
