#include "grad/accumulate.hpp"

#include <algorithm>

namespace autopar {

Result<ValueId> Accumulators::sum(const std::string& of, ValueId addend) {
  const std::string name = "acc." + of;
  for (const std::string& taken : {name, next_name(name)}) {
    const bool known = std::any_of(graph_.values.begin(), graph_.values.end(),
                                   [&taken](const Value& value) { return value.name == taken; });
    if (!known) continue;
    return input_error("micro-batches add up in '" + taken +
                       "', but the model has a value of that name; rename it");
  }
  to_.name_after(name, GraphBuilder::Naming::kCounted);
  const ValueId before = to_.input(DType::kFloat32, to_.shape(addend), ValueKind::kParameter);
  const ValueId next = to_.pointwise("Add", {before, addend});
  graph_.value(next).name = next_name(name);
  sums_.push_back({before, next, name});
  return before;
}

Status Accumulators::add(const TrainingOptions& options, std::vector<Trained>& trained,
                         Loss& loss) {
  // What is to be reduced in 16 bits is so in the update, from the float32 sum of all passes.
  const bool in_float32 = options.reduce == DType::kFloat32;
  const std::optional<DType> reduce = in_float32 ? options.reduce : std::nullopt;
  to_.set_phase(Phase::kBackward);
  for (Trained& one : trained) {
    const std::string name = graph_.value(one.parameter).name;
    to_.name_after(name + ".grad", GraphBuilder::Naming::kCounted);
    AUTOPAR_TRY(before, sum(name, whole_grad(to_, one, Scaler{}, reduce)));
    one.grad = before;
    one.copy_grad = ValueId();
  }
  if (loss.sum.valid()) {
    to_.set_phase(Phase::kForward);
    AUTOPAR_TRY(total, sum("loss", loss.sum));
    AUTOPAR_TRY(count, sum("count", loss.count));
    loss.sum = total;
    loss.count = count;
  }
  return Ok{};
}

void Accumulators::finish(const TrainingOptions& options, Loss& loss, Scaler& scaler) {
  to_.set_phase(Phase::kUpdate);
  if (loss.sum.valid()) {
    to_.name_after("loss.update", GraphBuilder::Naming::kCounted);
    const ValueId count = to_.pointwise("Max", {loss.count, to_.scalar(DType::kFloat32, 1)});
    loss.value = add_loss_output(to_, graph_, to_.pointwise("Div", {loss.sum, count}));
    to_.name_after("loss.update", GraphBuilder::Naming::kCounted);
    if (options.mean_gradients) {
      scaler.factor =
          to_.pointwise("Div", {to_.scalar(DType::kFloat32, loss.grads_divided_by), count});
    }
  } else if (options.mean_gradients && loss.combining == LossCombining::kMean) {
    scaler.factor = to_.scalar(DType::kFloat32, 1 / static_cast<double>(options.micro_batches));
  }
  if (!scaler.scale.valid()) return;
  to_.name_after("loss.update", GraphBuilder::Naming::kCounted);
  const ValueId one = scaler.factor.valid() ? scaler.factor : to_.scalar(DType::kFloat32, 1);
  scaler.factor = to_.pointwise("Div", {one, scaler.scale});
}

}  // namespace autopar
