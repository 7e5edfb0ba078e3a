// A forward graph becomes a training step: roles of the inputs, loss, backward pass, update,
// outputs.
#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "autopar/grad.hpp"
#include "autopar/ops.hpp"
#include "autopar/pattern.hpp"
#include "grad/accumulate.hpp"
#include "grad/loss.hpp"
#include "grad/optimizer.hpp"
#include "grad/precision.hpp"
#include "grad/tables.hpp"

namespace autopar {
namespace {

class Training {
 public:
  Training(Graph forward, const TrainingOptions& options) : options_(options) {
    step_.graph = std::move(forward);
    step_.options = options;
    for (const Value& value : step_.graph.values) value_names_.take(value.name);
    for (const Op& op : step_.graph.ops) op_names_.take(op.name);
  }

  Result<TrainingStep> run() {
    Graph& graph = step_.graph;
    GraphBuilder to(graph, value_names_, op_names_);
    if (!options_.dropout) remove_dropout();
    find_statistics();
    AUTOPAR_RETURN_IF_ERROR(check_patterns("--parameters", options_.parameters));
    AUTOPAR_RETURN_IF_ERROR(check_patterns("--freeze", options_.freeze));
    const std::vector<ValueId> candidates = find_candidates();
    AUTOPAR_TRY(scaler, add_scaler(to));
    AUTOPAR_TRY(copies, set_precision(to, graph, options_, candidates, step_.warnings));
    std::vector<ValueId> wanted = candidates;
    for (const auto& [parameter, copy] : copies) wanted.push_back(copy);
    // Gradients of what the model computes; the loss's own is told beside it.
    const std::size_t forward_ops = graph.ops.size();
    measure_forward();
    AUTOPAR_TRY(loss, add_loss(to, graph, options_, scaler.scale));
    AUTOPAR_TRY(grads, backward(to, forward_ops, {loss.seed}, wanted));
    AUTOPAR_TRY(trained, take_reached(candidates, copies, grads));
    if (loss.labels.valid()) count_tokens(loss.labels);
    Accumulators accumulators(to, graph);
    if (options_.accumulates()) {
      const std::size_t first = graph.ops.size();
      AUTOPAR_RETURN_IF_ERROR(accumulators.add(options_, trained, loss));
      early_.emplace_back(first, graph.ops.size());
      accumulators.finish(options_, loss, scaler);
    } else {
      sum_at_once(to, trained);
    }
    to.set_phase(Phase::kUpdate);
    begin_outputs(loss);
    if (options_.optimizer == Optimizer::kNone) {
      for (const Trained& one : trained) {
        const std::string name = graph.value(one.parameter).name;
        to.name_after(name + ".update", GraphBuilder::Naming::kCounted);
        const ValueId grad = whole_grad(to, one, scaler, options_.reduce);
        add_output(to, to.cast(grad, to.dtype(one.parameter)), "grad." + name);
        if (one.copy.valid()) step_.facts.states.push_back(graph.value(one.copy).name);
      }
    } else {
      AUTOPAR_TRY(updated, add_update(to, graph, options_, scaler, trained));
      for (ValueId state : updated.states) {
        step_.facts.states.push_back(graph.value(state).name);
      }
      for (std::size_t i = 0; i < updated.next.size(); ++i) {
        add_output(to, updated.next[i], next_name(updated.next_of[i]));
      }
    }
    to.set_phase(Phase::kForward);
    const std::size_t first_of_statistics = graph.ops.size();
    AUTOPAR_RETURN_IF_ERROR(add_statistics(to));
    early_.emplace_back(first_of_statistics, graph.ops.size());
    add_accumulators(accumulators);
    set_inputs();
    remove_dead_ops();
    AUTOPAR_RETURN_IF_ERROR(check_scatters());
    AUTOPAR_RETURN_IF_ERROR(verify(graph));
    return std::move(step_);
  }

 private:
  Result<Scaler> add_scaler(GraphBuilder& to) {
    const bool scales =
        options_.precision == Precision::kFp16 || options_.precision == Precision::kMixedFp16;
    if (!scales) return Scaler{};
    Scaler scaler;
    const bool updates = options_.optimizer != Optimizer::kNone;
    for (auto [value, name] : {std::pair(&scaler.scale, "scaler.scale"),
                               std::pair(&scaler.good_steps, "scaler.good_steps")}) {
      if (value == &scaler.good_steps && !updates) continue;  // the scale stays as it is
      if (value_names_.taken(name)) {
        return input_error(std::string("loss scaling needs an input '") + name +
                           "', but the model has a value of that name; rename it");
      }
      to.name_after(name, GraphBuilder::Naming::kCounted);
      *value = to.input(DType::kFloat32, {}, ValueKind::kParameter);
    }
    if (!updates) step_.facts.states.push_back("scaler.scale");
    return scaler;
  }

  // What a step of one pass has in place of accumulators: gradients are added up across devices
  // where the backward pass has made them, and not where the update reads them. Until then they
  // would be there whole.
  void sum_at_once(GraphBuilder& to, std::vector<Trained>& trained) {
    const std::size_t first = step_.graph.ops.size();
    to.set_phase(Phase::kBackward);
    for (Trained& one : trained) {
      to.name_after(step_.graph.value(one.parameter).name + ".grad",
                    GraphBuilder::Naming::kCounted);
      for (ValueId* grad : {&one.grad, &one.copy_grad}) {
        if (grad->valid()) *grad = summed_grad(to, *grad, options_.reduce);
      }
    }
    early_.emplace_back(first, step_.graph.ops.size());
  }

  void remove_dropout() {
    for (Op& op : step_.graph.ops) {
      if (op.type != "Dropout" || !op.domain.empty()) continue;
      op.type = "Identity";
      op.inputs.resize(1);
      op.attributes.clear();
      AUTOPAR_CHECK(!op.has_output(1) || uses_of(step_.graph)[op.outputs[1].index()].empty(),
                    "the mask of a Dropout is read");
      op.outputs.resize(1);
    }
  }

  // Means and variances that batch normalisation keeps: never trained, and where it trains, it
  // says what they are next.
  void find_statistics() {
    const Graph& graph = step_.graph;
    for (const Op& op : graph.ops) {
      if (op.type != "BatchNormalization" || !op.domain.empty()) continue;
      const bool trains = op.int_attribute("training_mode", 0) != 0;
      for (std::size_t port : {std::size_t{3}, std::size_t{4}}) {
        if (!op.has_input(port)) continue;
        const ValueId value = op.inputs[port];
        statistics_.insert(value);
        if (trains && graph.value(value).kind != ValueKind::kActivation) {
          kept_.push_back({op.outputs.front(), port, value});
        }
      }
    }
  }

  bool may_be_parameter(const Value& value, ValueId id) const {
    const bool named = !options_.parameters.empty() && any_matches(options_.parameters, value.name);
    const bool holds = value.kind == ValueKind::kParameter ||
                       (named && (value.kind == ValueKind::kInput ||
                                  (value.kind == ValueKind::kConstant && value.has_data())));
    return holds && is_floating(value.dtype) && !value.shape.empty() &&
           statistics_.count(id) == 0 && (options_.parameters.empty() || named);
  }

  // Inputs that only describe an op, such as the scales of a Resize.
  std::set<ValueId> find_operands() const {
    std::set<ValueId> operands, read;
    for (const Op& op : step_.graph.ops) {
      for (std::size_t port = 0; port < op.inputs.size(); ++port) {
        (is_operand_constant(op, port) ? operands : read).insert(op.inputs[port]);
      }
    }
    for (ValueId value : read) operands.erase(value);
    return operands;
  }

  std::vector<ValueId> find_candidates() {
    std::vector<ValueId> found;
    const std::set<ValueId> operands = find_operands();
    const auto uses = uses_of(step_.graph);
    for (std::size_t v = 0; v < step_.graph.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      const Value& value = step_.graph.value(id);
      if (!may_be_parameter(value, id) || operands.count(id) != 0) continue;
      if (any_matches(options_.freeze, value.name)) {
        step_.facts.frozen.push_back(value.name);
      } else {
        found.push_back(id);
        // Who names what is trained knows.
        if (!options_.parameters.empty()) continue;
        if (const std::string why = why_computed(step_.graph, uses, id); !why.empty()) {
          why_computed_[value.name] = why;
        }
      }
    }
    return found;
  }

  void measure_forward() {
    const Graph& graph = step_.graph;
    ForwardWork& work = step_.facts.forward;
    for (const Op& op : graph.ops) {
      if (!is_contraction(op) || !op.has_input(0)) continue;
      work.contractions[graph.value(op.inputs[0]).dtype] += work_of(op, shapes_of(graph, op)).flops;
    }
    for (ValueId input : graph.inputs) {
      const Value& value = graph.value(input);
      if (value.kind != ValueKind::kInput || value.shape.empty()) continue;
      if (work.samples == 0) work.samples = static_cast<double>(value.shape[0]);
      if (!is_floating(value.dtype)) count_tokens(input);
    }
  }

  // Of the first of them that has a second dimension.
  void count_tokens(ValueId value) {
    const Shape shape = step_.graph.value(value).shape;
    double& tokens = step_.facts.forward.tokens;
    if (tokens == 0 && shape.size() == 2) tokens = static_cast<double>(element_count(shape));
  }

  void warn_of_computed() {
    std::string told, names;
    for (const std::string& name : step_.facts.parameters) {
      const auto why = why_computed_.find(name);
      if (why == why_computed_.end()) continue;
      told += (told.empty() ? "'" : ", '") + name + "' (" + why->second + ")";
      names += (names.empty() ? "" : ",") + name;
    }
    if (told.empty()) return;
    step_.warnings.push_back("trained like weights, though it looks as if they were computed: " +
                             told + "; --freeze " + names + " leaves them as they are");
  }

  Status check_patterns(const char* option, const std::vector<std::string>& patterns) const {
    for (const std::string& pattern : patterns) {
      bool found = false;
      std::string some;
      int told = 0;
      for (const Value& value : step_.graph.values) {
        if (value.kind == ValueKind::kActivation || !is_floating(value.dtype)) continue;
        found = found || matches(pattern, value.name);
        if (value.kind == ValueKind::kParameter && told++ < 5) {
          some += (some.empty() ? "'" : ", '") + value.name + "'";
        }
      }
      if (found) continue;
      return usage_error(std::string(option) + ": no input or initializer is called '" + pattern +
                         "'; there are " + (some.empty() ? "none" : some) +
                         (told > 5 ? ", ..." : ""));
    }
    return Ok{};
  }

  Result<std::vector<Trained>> take_reached(const std::vector<ValueId>& candidates,
                                            const Copies& copies,
                                            const std::vector<ValueId>& grads) {
    std::vector<Trained> trained;
    std::map<ValueId, ValueId> grad_of_copy;
    std::size_t next = candidates.size();
    for (const auto& [parameter, copy] : copies) grad_of_copy[copy] = grads[next++];
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::string& name = step_.graph.value(candidates[i]).name;
      Trained one{candidates[i], grads[i], ValueId(), ValueId()};
      if (const auto copy = copies.find(candidates[i]); copy != copies.end()) {
        one.copy = copy->second;
        one.copy_grad = grad_of_copy[copy->second];
      }
      if (one.grad.valid() || one.copy_grad.valid()) {
        trained.push_back(one);
        step_.facts.parameters.push_back(name);
      } else {
        step_.facts.unreached.push_back(name);
      }
    }
    if (!trained.empty()) {
      warn_of_computed();
      return trained;
    }
    if (candidates.empty()) {
      return input_error(
          "there is nothing to train: the model has no floating-point parameter that is not "
          "frozen (weights that are graph inputs: --data-inputs names the others, or --parameters "
          "names them)");
    }
    std::string some;
    for (std::size_t i = 0; i < std::min<std::size_t>(candidates.size(), 5); ++i) {
      some += (i > 0 ? ", '" : "'") + step_.facts.unreached[i] + "'";
    }
    return input_error("no gradient of the loss reaches a parameter (" + some +
                       (candidates.size() > 5 ? ", ..." : "") +
                       "): it does not depend on them, or through integers alone");
  }

  void begin_outputs(const Loss& loss) {
    Graph& graph = step_.graph;
    graph.outputs = {loss.value};
    step_.facts.loss = graph.value(loss.value).name;
    step_.facts.loss_combining = loss.combining;
  }

  void add_accumulators(const Accumulators& accumulators) {
    Graph& graph = step_.graph;
    graph.passes = options_.micro_batches;
    graph.accumulates = options_.accumulates();
    for (const Accumulators::Sum& sum : accumulators.sums()) {
      graph.outputs.push_back(sum.next);
      step_.facts.accumulators.push_back(sum.name);
    }
    ForwardWork& work = step_.facts.forward;
    const auto passes = static_cast<double>(graph.passes);
    work.samples *= passes;
    work.tokens *= passes;
    for (auto& [dtype, flops] : work.contractions) flops *= passes;
  }

  // Values of the step's own are renamed, others get a copy of that name.
  void add_output(GraphBuilder& to, ValueId value, const std::string& name) {
    Graph& graph = step_.graph;
    const bool own =
        graph.value(value).kind == ValueKind::kActivation &&
        std::find(graph.outputs.begin(), graph.outputs.end(), value) == graph.outputs.end();
    if (!own) {
      to.name_after(name + ".update", GraphBuilder::Naming::kCounted);
      value = to.add("Identity", {value}, to.dtype(value), to.shape(value));
    }
    graph.value(value).name = name;
    graph.outputs.push_back(value);
  }

  Status add_statistics(GraphBuilder& to) {
    std::set<ValueId> seen;
    for (const Kept& kept : kept_) {
      const Value before = step_.graph.value(kept.value);
      const OpId op = step_.graph.value(kept.normalised).producer;
      if (!seen.insert(kept.value).second) {
        return input_error("op '" + step_.graph.op(op).name + "': the running statistic '" +
                           before.name + "' belongs to two batch normalisations");
      }
      const ValueId next = to.output_of(op, kept.port - 2, before.dtype, before.shape);
      add_output(to, next, next_name(before.name));
      step_.facts.statistics.push_back(before.name);
    }
    return Ok{};
  }

  // Data, labels, what else was an input, parameters, running statistics, states.
  void set_inputs() {
    Graph& graph = step_.graph;
    std::set<std::string> moved(step_.facts.parameters.begin(), step_.facts.parameters.end());
    moved.insert(step_.facts.statistics.begin(), step_.facts.statistics.end());
    moved.insert(step_.facts.states.begin(), step_.facts.states.end());
    moved.insert(step_.facts.accumulators.begin(), step_.facts.accumulators.end());
    std::vector<ValueId> inputs;
    for (ValueId input : graph.inputs) {
      const Value& value = graph.value(input);
      if (moved.count(value.name) != 0) continue;
      inputs.push_back(input);
      if (value.kind == ValueKind::kInput) step_.facts.data.push_back(value.name);
    }
    std::unordered_map<std::string_view, std::size_t> by_name;  // the first of each
    for (std::size_t v = 0; v < graph.values.size(); ++v) by_name.emplace(graph.values[v].name, v);
    const auto append = [&](const std::vector<std::string>& names) {
      for (const std::string& name : names) {
        const auto found = by_name.find(name);
        if (found == by_name.end()) continue;
        Value& value = graph.values[found->second];
        value.kind = ValueKind::kParameter;
        value.data = std::monostate();
        inputs.push_back(ValueId(static_cast<std::int64_t>(found->second)));
      }
    };
    append(step_.facts.parameters);
    append(step_.facts.statistics);
    append(step_.facts.states);
    append(step_.facts.accumulators);
    graph.inputs = std::move(inputs);
  }

  // Without ops that no output needs, and values that nothing makes or reads; the update comes
  // last.
  // That of the graph, but that what adds up in each pass does so as soon as it can, and what it
  // adds need not wait.
  std::vector<std::size_t> order_of_ops() const {
    const Graph& graph = step_.graph;
    std::vector<std::size_t> after(graph.ops.size());  // per op the one that it comes after
    for (std::size_t i = 0; i < after.size(); ++i) after[i] = i;
    for (const auto& [first, end] : early_) {
      for (std::size_t i = first; i < end; ++i) {
        after[i] = 0;
        for (const ValueId input : graph.ops[i].inputs) {
          if (!input.valid() || !graph.value(input).producer.valid()) continue;
          after[i] = std::max(after[i], after[graph.value(input).producer.index()]);
        }
      }
    }
    std::vector<std::size_t> order(graph.ops.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return after[a] < after[b]; });
    return order;
  }

  void remove_dead_ops() {
    Graph& graph = step_.graph;
    const std::vector<std::size_t> order = order_of_ops();
    std::vector<char> needed(graph.values.size());
    for (ValueId input : graph.inputs) needed[input.index()] = 1;
    for (ValueId output : graph.outputs) needed[output.index()] = 1;
    std::vector<char> alive(graph.ops.size());
    for (std::size_t i = graph.ops.size(); i-- > 0;) {
      const Op& op = graph.ops[i];
      alive[i] = std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
        return output.valid() && needed[output.index()] != 0;
      });
      if (!alive[i]) continue;
      for (ValueId input : op.inputs) {
        if (input.valid()) needed[input.index()] = 1;
      }
      for (ValueId output : op.outputs) {
        if (output.valid()) needed[output.index()] = 1;
      }
    }
    std::vector<Op> ops;
    for (const bool update : {false, true}) {
      for (const std::size_t i : order) {
        if (alive[i] == 0 || (graph.ops[i].phase == Phase::kUpdate) != update) continue;
        ops.push_back(std::move(graph.ops[i]));
      }
    }
    graph.ops = std::move(ops);
    keep(graph, std::vector<char>(graph.ops.size(), 1), needed);
  }

  Status check_scatters() const {
    if (step_.graph.opset >= 16) return Ok{};
    for (const Op& op : step_.graph.ops) {
      if (op.string_attribute("reduction", "none") == "none") continue;
      if (op.type != "ScatterND" && op.type != "ScatterElements") continue;
      return input_error("op '" + op.name + "' adds up gradients by " + op.type +
                         ", which can add since opset 16; the model has opset " +
                         std::to_string(step_.graph.opset) + ": convert it");
    }
    return Ok{};
  }

  struct Kept {
    ValueId normalised;  // the first output of its op
    std::size_t port;
    ValueId value;
  };

  const TrainingOptions& options_;
  TrainingStep step_;
  Names value_names_, op_names_;
  std::set<ValueId> statistics_;
  std::map<std::string, std::string> why_computed_;  // candidates that look like no weights
  std::vector<Kept> kept_;
  std::vector<std::pair<std::size_t, std::size_t>> early_;  // ops, by place, from and to
};

}  // namespace

Result<TrainingStep> training_step(Graph forward, const TrainingOptions& options) {
  return Training(std::move(forward), options).run();
}

}  // namespace autopar
