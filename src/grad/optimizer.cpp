#include "grad/optimizer.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace autopar {
namespace {

struct OptimizerName {
  Optimizer optimizer;
  const char* name;
};
constexpr std::array<OptimizerName, 5> kOptimizerNames = {{{Optimizer::kNone, "none"},
                                                           {Optimizer::kSgd, "sgd"},
                                                           {Optimizer::kMomentum, "momentum"},
                                                           {Optimizer::kAdam, "adam"},
                                                           {Optimizer::kAdamW, "adamw"}}};

class Update {
 public:
  Update(GraphBuilder& to, Graph& graph, const TrainingOptions& options, const Scaler& scaler)
      : to_(to), graph_(graph), options_(options), scaler_(scaler) {
    for (const Value& value : graph.values) taken_.take(value.name);
  }

  Result<Updated> run(std::vector<Trained> trained) {
    decay_ = options_.weight_decay.value_or(options_.optimizer == Optimizer::kAdamW ? 0.01 : 0);
    AUTOPAR_TRY(rate, add_state("learning_rate", {}));
    rate_ = rate;
    const bool adaptive =
        options_.optimizer == Optimizer::kAdam || options_.optimizer == Optimizer::kAdamW;
    for (Trained& one : trained) {
      name_update(one.parameter);
      one.grad = whole_grad(to_, one, Scaler{}, options_.reduce);
    }
    if (scaler_.scale.valid()) begin_scaler(trained);
    if (adaptive) AUTOPAR_RETURN_IF_ERROR(begin_adaptive());
    multiply(trained);
    for (const Trained& one : trained) AUTOPAR_RETURN_IF_ERROR(update(one));
    std::vector<std::string> owners;
    for (const Trained& one : trained) owners.push_back(graph_.value(one.parameter).name);
    updated_.next_of.insert(updated_.next_of.begin(), owners.begin(), owners.end());
    updated_.next.insert(updated_.next.begin(), parameters_.begin(), parameters_.end());
    return std::move(updated_);
  }

 private:
  ValueId number(double value) { return to_.scalar(DType::kFloat32, value); }
  ValueId times(ValueId a, ValueId b) { return to_.pointwise("Mul", {a, b}); }

  void name_update(ValueId parameter) {
    to_.name_after(graph_.value(parameter).name + ".update", GraphBuilder::Naming::kCounted);
  }

  Result<ValueId> add_state(const std::string& name, const Shape& shape) {
    if (taken_.taken(name)) {
      return input_error("the optimizer needs an input '" + name +
                         "', but the model has a value of that name; rename it");
    }
    taken_.take(name);
    to_.name_after(name, GraphBuilder::Naming::kCounted);
    updated_.states.push_back(to_.input(DType::kFloat32, shape, ValueKind::kParameter));
    return updated_.states.back();
  }

  // Nothing changes in a step with a gradient that is not finite.
  ValueId if_good(ValueId next, ValueId before) {
    return good_.valid() ? to_.pointwise("Where", {good_, next, before}) : next;
  }

  void begin_scaler(const std::vector<Trained>& trained) {
    to_.name_after("scaler.update", GraphBuilder::Naming::kCounted);
    const ValueId zero = number(0);
    ValueId sum;  // 0, or not a number
    for (const Trained& one : trained) {
      std::vector<std::size_t> dims(to_.rank(one.grad));
      for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = d;
      const ValueId part = to_.reduce("ReduceSum", times(one.grad, zero), dims, false);
      sum = sum.valid() ? to_.pointwise("Add", {sum, part}) : part;
    }
    good_ = to_.test("Equal", {sum, zero});
    const ValueId steps = to_.pointwise("Add", {scaler_.good_steps, number(1)});
    const ValueId grows = to_.test("GreaterOrEqual", {steps, number(kGoodStepsToGrow)});
    const ValueId larger =
        to_.pointwise("Where", {grows, to_.scaled(scaler_.scale, 2), scaler_.scale});
    const ValueId scale = to_.pointwise("Where", {good_, larger, to_.scaled(scaler_.scale, 0.5)});
    const ValueId counted = to_.pointwise("Where", {grows, zero, steps});
    updated_.states.insert(updated_.states.begin() + 1, {scaler_.scale, scaler_.good_steps});
    updated_.next.push_back(scale);
    updated_.next_of.push_back(graph_.value(scaler_.scale).name);
    updated_.next.push_back(to_.pointwise("Where", {good_, counted, zero}));
    updated_.next_of.push_back(graph_.value(scaler_.good_steps).name);
  }

  void set_next(ValueId state, ValueId next) {
    next = if_good(next, state);
    updated_.next.push_back(next);
    updated_.next_of.push_back(graph_.value(state).name);
  }

  Status begin_adaptive() {
    AUTOPAR_TRY(step, add_state("adam.step", {}));
    to_.name_after("adam.step.update", GraphBuilder::Naming::kCounted);
    const ValueId t = to_.pointwise("Add", {step, number(1)});
    set_next(step, t);
    const auto correction = [&](double beta) {
      return to_.pointwise("Sub", {number(1), to_.pointwise("Pow", {number(beta), t})});
    };
    // lr m / c1 = m * (lr / c1)
    step_size_ = to_.pointwise("Div", {rate_, correction(options_.beta1)});
    correction2_ = correction(options_.beta2);
    if (options_.optimizer == Optimizer::kAdamW && decay_ != 0) {
      keep_ = to_.pointwise("Sub", {number(1), to_.scaled(rate_, decay_)});
    }
    return Ok{};
  }

  // By the scaler's factor and the share that clipping leaves, at once: what looks at all gradients
  // together looks at them before, so that their products are not all held at one time.
  void multiply(std::vector<Trained>& trained) {
    ValueId factor = scaler_.factor;
    if (!factor.valid() && scaler_.scale.valid()) {
      to_.name_after("scaler.update", GraphBuilder::Naming::kCounted);
      factor = to_.pointwise("Div", {number(1), scaler_.scale});
    }
    if (options_.clip_norm > 0) factor = clipped(trained, factor);
    if (!factor.valid()) return;
    for (Trained& one : trained) {
      name_update(one.parameter);
      one.grad = times(one.grad, factor);
    }
  }

  // f min(1, C / (f norm + 1e-6)), the norm being that of all gradients together.
  ValueId clipped(const std::vector<Trained>& trained, ValueId factor) {
    ValueId sum;
    to_.name_after("clip.update", GraphBuilder::Naming::kCounted);
    for (const Trained& one : trained) {
      std::vector<std::size_t> dims(to_.rank(one.grad));
      for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = d;
      const ValueId square = to_.reduce("ReduceSumSquare", one.grad, dims, false);
      sum = sum.valid() ? to_.pointwise("Add", {sum, square}) : square;
    }
    ValueId norm = to_.pointwise("Sqrt", {sum});
    if (factor.valid()) norm = times(norm, factor);
    norm = to_.pointwise("Add", {norm, number(1e-6)});
    const ValueId share =
        to_.pointwise("Min", {to_.pointwise("Div", {number(options_.clip_norm), norm}), number(1)});
    return factor.valid() ? times(factor, share) : share;
  }

  Status update(Trained one) {
    const std::string name = graph_.value(one.parameter).name;
    const DType dtype = to_.dtype(one.parameter);
    name_update(one.parameter);
    const ValueId p = to_.cast(one.parameter, DType::kFloat32);
    if (options_.optimizer != Optimizer::kAdamW && decay_ != 0) {
      one.grad = to_.pointwise("Add", {one.grad, to_.scaled(p, decay_)});
    }
    ValueId next;
    switch (options_.optimizer) {
      case Optimizer::kNone:
        return Ok{};
      case Optimizer::kSgd:
        next = to_.pointwise("Sub", {p, times(one.grad, rate_)});
        break;
      case Optimizer::kMomentum: {
        AUTOPAR_TRY(state, add_state("sgd.m." + name, to_.shape(p)));
        name_update(one.parameter);
        const ValueId m = to_.pointwise("Add", {to_.scaled(state, options_.momentum), one.grad});
        set_next(state, m);
        next = to_.pointwise("Sub", {p, times(m, rate_)});
        break;
      }
      case Optimizer::kAdam:
      case Optimizer::kAdamW: {
        AUTOPAR_TRY(stepped, adaptive_step(one, p, name));
        next = stepped;
        break;
      }
    }
    next = to_.cast(if_good(next, p), dtype);
    parameters_.push_back(next);
    if (one.copy.valid()) {
      updated_.states.push_back(one.copy);
      updated_.next.push_back(to_.cast(next, to_.dtype(one.copy)));
      updated_.next_of.push_back(graph_.value(one.copy).name);
    }
    return Ok{};
  }

  Result<ValueId> adaptive_step(const Trained& one, ValueId p, const std::string& name) {
    const Shape shape = to_.shape(p);
    AUTOPAR_TRY(m, add_state("adam.m." + name, shape));
    AUTOPAR_TRY(v, add_state("adam.v." + name, shape));
    name_update(one.parameter);
    const ValueId g = one.grad;
    const ValueId m1 =
        to_.pointwise("Add", {to_.scaled(m, options_.beta1), to_.scaled(g, 1 - options_.beta1)});
    const ValueId v1 = to_.pointwise(
        "Add", {to_.scaled(v, options_.beta2), to_.scaled(times(g, g), 1 - options_.beta2)});
    set_next(m, m1);
    set_next(v, v1);
    const ValueId root = to_.pointwise("Sqrt", {to_.pointwise("Div", {v1, correction2_})});
    const ValueId divisor = to_.pointwise("Add", {root, number(options_.epsilon)});
    const ValueId change = to_.pointwise("Div", {times(m1, step_size_), divisor});
    return to_.pointwise("Sub", {keep_.valid() ? times(p, keep_) : p, change});
  }

  GraphBuilder& to_;
  Graph& graph_;
  const TrainingOptions& options_;
  const Scaler scaler_;
  Names taken_;
  Updated updated_;
  std::vector<ValueId> parameters_;
  ValueId rate_, step_size_, correction2_, keep_;
  double decay_ = 0;
  ValueId good_;  // bool; invalid: no step is left out
};

}  // namespace

const char* name_of(Optimizer optimizer) {
  for (const OptimizerName& row : kOptimizerNames) {
    if (row.optimizer == optimizer) return row.name;
  }
  return "none";
}

std::optional<Optimizer> parse_optimizer(const std::string& name) {
  for (const OptimizerName& row : kOptimizerNames) {
    if (name == row.name) return row.optimizer;
  }
  return std::nullopt;
}

namespace {

// Through which a partial sum passes, in one of the inputs or in all of them.
bool hands_sums_on(const Op& op) {
  static constexpr std::array<const char*, 14> kTypes = {
      "Add",     "Cast",    "Concat", "Div", "Identity",  "Mul",       "Neg",
      "Reshape", "Squeeze", "Sub",    "Sum", "Transpose", "Unsqueeze", "Where"};
  return op.domain.empty() && std::find(kTypes.begin(), kTypes.end(), op.type) != kTypes.end();
}

// A sum that comes to `grad` is not reduced on its way there while it is of another type.
void reduce_in(GraphBuilder& to, ValueId grad, DType reduce) {
  std::vector<ValueId> left = {grad};
  std::set<OpId> seen;
  while (!left.empty()) {
    const OpId id = to.value(left.back()).producer;
    left.pop_back();
    if (!id.valid() || !seen.insert(id).second) continue;
    const Op& op = to.graph().op(id);
    if (op.phase == Phase::kForward || !hands_sums_on(op)) continue;
    bool reads_another = false;
    for (const ValueId input : op.inputs) {
      if (!input.valid() || !to.value(input).producer.valid()) continue;
      const DType dtype = to.dtype(input);
      reads_another = reads_another || (is_floating(dtype) && dtype != reduce);
      left.push_back(input);
    }
    if (reads_another) to.set_sums(id, SumsAt::kAfter);
  }
}

// In `reduce`, and not added up across devices before.
ValueId cast_to_reduce(GraphBuilder& to, ValueId grad, DType reduce) {
  const ValueId narrow = to.cast(grad, reduce);
  reduce_in(to, narrow, reduce);
  return narrow;
}

// In float32, and added up across devices in `reduce`.
ValueId reduced_in(GraphBuilder& to, ValueId grad, std::optional<DType> reduce) {
  if (!reduce) return to.cast(grad, DType::kFloat32);
  const ValueId narrow = cast_to_reduce(to, grad, *reduce);
  if (*reduce == DType::kFloat32) return narrow;
  const ValueId whole = to.cast(narrow, DType::kFloat32);
  to.set_sums(to.value(whole).producer, SumsAt::kBefore);
  return whole;
}

}  // namespace

ValueId summed_grad(GraphBuilder& to, ValueId grad, std::optional<DType> reduce) {
  if (reduce) grad = cast_to_reduce(to, grad, *reduce);
  const ValueId summed = to.add("Identity", {grad}, to.dtype(grad), to.shape(grad));
  to.set_sums(to.value(summed).producer, SumsAt::kBefore);
  return summed;
}

ValueId whole_grad(GraphBuilder& to, const Trained& one, const Scaler& scaler,
                   std::optional<DType> reduce) {
  ValueId grad = one.grad;
  if (grad.valid()) grad = reduced_in(to, grad, reduce);
  if (one.copy_grad.valid()) {
    const ValueId of_copy = reduced_in(to, one.copy_grad, reduce);
    grad = grad.valid() ? to.pointwise("Add", {grad, of_copy}) : of_copy;
  }
  if (scaler.factor.valid()) return to.pointwise("Mul", {grad, scaler.factor});
  return scaler.scale.valid() ? to.pointwise("Div", {grad, scaler.scale}) : grad;
}

Result<Updated> add_update(GraphBuilder& to, Graph& graph, const TrainingOptions& options,
                           const Scaler& scaler, std::vector<Trained> trained) {
  return Update(to, graph, options, scaler).run(std::move(trained));
}

}  // namespace autopar
