#include "grad/loss.hpp"

#include <algorithm>

namespace autopar {
namespace {

std::string outputs_of(const Graph& graph) {
  std::string text;
  for (ValueId output : graph.outputs) {
    text += (text.empty() ? "'" : ", '") + graph.value(output).name + "' " +
            to_text(graph.value(output).shape);
  }
  return text;
}

Result<ValueId> output_named(const Graph& graph, const std::string& name) {
  for (ValueId output : graph.outputs) {
    if (graph.value(output).name == name) return output;
  }
  return usage_error("--loss: the model has no output '" + name + "'; it has " + outputs_of(graph));
}

Status check_floating(const Graph& graph, ValueId value) {
  if (is_floating(graph.value(value).dtype)) return Ok{};
  return usage_error("--loss: output '" + graph.value(value).name + "' holds " +
                     name_of(graph.value(value).dtype) + ", no gradient can reach it");
}

class Adder {
 public:
  Adder(GraphBuilder& to, Graph& graph, const TrainingOptions& options, ValueId scale)
      : to_(to), graph_(graph), options_(options), scale_(scale) {}

  // An output as it is.
  Result<Loss> as_it_is(ValueId value) {
    const Value output = graph_.value(value);
    if (element_count(output.shape) != 1) {
      return usage_error("--loss: output '" + output.name + "' has the shape " +
                         to_text(output.shape) + ", a loss is one number; name another output, " +
                         "or cross_entropy:" + output.name + ", mse:" + output.name +
                         ", sum:" + output.name);
    }
    AUTOPAR_RETURN_IF_ERROR(check_floating(graph_, value));
    begin_backward();
    const double passes =
        options_.mean_gradients ? 1 : static_cast<double>(options_.stands_for_passes);
    const ValueId one = to_.filled(DType::kFloat32, output.shape, passes);
    return Loss{value, ValueId(), {value, to_.cast(times_scale(one), output.dtype)}};
  }

  // Minus the logarithm of the probability of the label, averaged over the labels that count.
  Result<Loss> cross_entropy(ValueId logits) {
    AUTOPAR_RETURN_IF_ERROR(check_floating(graph_, logits));
    const Shape shape = to_.shape(logits);
    if (shape.size() < 2) {
      return usage_error("--loss cross_entropy: output '" + graph_.value(logits).name + "' is " +
                         to_text(shape) + "; expected logits [..., classes] with samples before " +
                         "the classes");
    }
    const std::size_t classes = shape.size() - 1;
    const Shape samples(shape.begin(), shape.end() - 1);
    AUTOPAR_TRY(labels, add_input("labels", DType::kInt64, samples));
    begin();
    const ValueId x = to_.cast(logits, DType::kFloat32);
    const ValueId ignored = to_.scalar(DType::kInt64, -100);
    const ValueId counts = to_.test("Not", {to_.test("Equal", {labels, ignored})});
    const ValueId safe = to_.pointwise("Where", {counts, labels, to_.scalar(DType::kInt64, 0)});
    const ValueId places = to_.unsqueeze(safe, classes);
    const ValueId weights = to_.cast(counts, DType::kFloat32);
    const ValueId total = sum_of(weights);
    const ValueId divisor = options_.accumulates()
                                ? ValueId()
                                : to_.pointwise("Max", {total, to_.scalar(DType::kFloat32, 1)});
    const ValueId norm = to_.reduce("ReduceLogSumExp", x, {classes});
    Shape column = samples;
    column.push_back(1);
    const ValueId picked = to_.add("GatherElements", {x, places}, DType::kFloat32, column,
                                   {{"axis", static_cast<std::int64_t>(classes)}});
    const ValueId minus_log = to_.reshape(to_.pointwise("Sub", {norm, picked}), samples);
    // Selected, since a label that does not count has the loss of class 0, which may be infinite.
    const ValueId counted =
        to_.pointwise("Where", {counts, minus_log, to_.scalar(DType::kFloat32, 0)});
    const ValueId sum = sum_of(counted);
    Loss loss{ValueId(), labels, {}};
    // d(loss)/d(x) = (softmax(x) - one at the label) * weight / divisor
    ValueId share = weights;
    if (options_.accumulates()) {
      // How many count in the whole batch is known after the last pass. Until then: all.
      loss.combining = LossCombining::kLast;
      loss.sum = sum;
      loss.count = total;
      begin_backward();
      if (options_.mean_gradients) {
        loss.grads_divided_by = static_cast<double>(element_count(samples)) *
                                static_cast<double>(options_.micro_batches);
        share = to_.scaled(weights, 1 / loss.grads_divided_by);
      }
    } else {
      loss.value = finish(to_.pointwise("Div", {sum, divisor}));
      begin_backward();
      if (options_.mean_gradients) share = to_.pointwise("Div", {weights, divisor});
    }
    const ValueId scale = to_.unsqueeze(times_scale(share), classes);
    const ValueId shares = to_.pointwise("Exp", {to_.pointwise("Sub", {x, norm})});
    const ValueId weighted = to_.pointwise("Mul", {shares, scale});
    const ValueId less = to_.pointwise("Neg", {scale});
    const ValueId grad =
        to_.add("ScatterElements", {weighted, places, less}, DType::kFloat32, shape,
                {{"axis", static_cast<std::int64_t>(classes)}, {"reduction", std::string("add")}});
    loss.seed = {logits, to_.cast(grad, to_.dtype(logits))};
    return loss;
  }

  Result<Loss> mean_square(ValueId output) {
    AUTOPAR_RETURN_IF_ERROR(check_floating(graph_, output));
    AUTOPAR_TRY(labels, add_input("labels", to_.dtype(output), to_.shape(output)));
    begin();
    const ValueId apart = to_.pointwise(
        "Sub", {to_.cast(output, DType::kFloat32), to_.cast(labels, DType::kFloat32)});
    const double count = static_cast<double>(element_count(to_.shape(output)));
    const ValueId squares = to_.pointwise("Mul", {apart, apart});
    const ValueId value = finish(to_.scaled(sum_of(squares), 1 / count));
    begin_backward();
    const ValueId grad = times_scale(to_.scaled(apart, options_.mean_gradients ? 2 / count : 2));
    return Loss{value, labels, {output, to_.cast(grad, to_.dtype(output))}};
  }

  Result<Loss> plain_sum(ValueId output) {
    AUTOPAR_RETURN_IF_ERROR(check_floating(graph_, output));
    begin();
    const ValueId value = finish(sum_of(to_.cast(output, DType::kFloat32)));
    begin_backward();
    const ValueId ones = times_scale(to_.filled(DType::kFloat32, to_.shape(output), 1));
    return Loss{value, ValueId(), {output, to_.cast(ones, to_.dtype(output))}, LossCombining::kSum};
  }

 private:
  ValueId times_scale(ValueId grad) {
    return scale_.valid() ? to_.pointwise("Mul", {grad, scale_}) : grad;
  }

  void begin_backward() {
    to_.set_phase(Phase::kBackward);
    to_.name_after("loss.grad", GraphBuilder::Naming::kCounted);
  }

  void begin() { to_.name_after("loss", GraphBuilder::Naming::kByType); }

  ValueId sum_of(ValueId value) {
    std::vector<std::size_t> dims(to_.rank(value));
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = d;
    return dims.empty() ? value : to_.reduce("ReduceSum", value, dims, false);
  }

  ValueId finish(ValueId value) { return add_loss_output(to_, graph_, value); }

  Result<ValueId> add_input(const std::string& name, DType dtype, Shape shape) {
    for (const Value& value : graph_.values) {
      if (value.name != name) continue;
      return usage_error("--loss adds an input '" + name +
                         "', but the model has a value of that name; rename it, or compute the "
                         "loss in the model");
    }
    to_.name_after(name, GraphBuilder::Naming::kCounted);
    return to_.input(dtype, std::move(shape), ValueKind::kInput);
  }

  GraphBuilder& to_;
  Graph& graph_;
  const TrainingOptions& options_;
  ValueId scale_;
};

}  // namespace

ValueId add_loss_output(GraphBuilder& to, Graph& graph, ValueId value) {
  // The model's other outputs go; one of that name is an activation like others.
  for (Value& other : graph.values) {
    if (other.name == "loss") other.name = "loss.of.model";
  }
  to.name_after("loss", GraphBuilder::Naming::kCounted);
  const ValueId loss = to.add("Identity", {value}, to.dtype(value), to.shape(value));
  graph.value(loss).name = "loss";
  return loss;
}

const char* name_of(LossCombining combining) {
  switch (combining) {
    case LossCombining::kSum:
      return "sum";
    case LossCombining::kLast:
      return "last";
    case LossCombining::kMean:
      break;
  }
  return "mean";
}

Result<Loss> add_loss(GraphBuilder& to, Graph& graph, const TrainingOptions& options,
                      ValueId scale) {
  Adder adder(to, graph, options, scale);
  const std::string& text = options.loss;
  // An output of that very name is meant, whatever it is called.
  const bool is_output = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                     [&](ValueId v) { return graph.value(v).name == text; });
  if (text.empty()) {
    const auto named = output_named(graph, "loss");
    if (named) return adder.as_it_is(*named);
    const ValueId only = graph.outputs[0];
    if (graph.outputs.size() == 1 && element_count(graph.value(only).shape) == 1) {
      return adder.as_it_is(only);
    }
    return usage_error(
        "which loss? --loss NAME of a scalar output, or cross_entropy[:OUTPUT], mse[:OUTPUT], "
        "sum[:OUTPUT]; the model's outputs are " +
        outputs_of(graph));
  }
  if (is_output) {
    AUTOPAR_TRY(value, output_named(graph, text));
    return adder.as_it_is(value);
  }
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  ValueId output = graph.outputs[0];
  if (kind != "cross_entropy" && kind != "mse" && kind != "sum") {
    AUTOPAR_TRY(value, output_named(graph, text));
    return adder.as_it_is(value);
  }
  if (colon != std::string::npos) {
    AUTOPAR_TRY(named, output_named(graph, text.substr(colon + 1)));
    output = named;
  }
  if (kind == "cross_entropy") return adder.cross_entropy(output);
  return kind == "mse" ? adder.mean_square(output) : adder.plain_sum(output);
}

}  // namespace autopar
