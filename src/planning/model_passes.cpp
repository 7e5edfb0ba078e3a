#include "planning/model_passes.hpp"

#include <algorithm>

#include "autopar/search.hpp"

namespace autopar {

namespace {

// What one micro-batch hands to the next would go from sample to sample.
Status check_hands_nothing_on(const Graph& graph, const std::string& updates) {
  const std::vector<ValueId> updated = updated_inputs(graph, updates);
  for (std::size_t v = 0; v < updated.size(); ++v) {
    if (!updated[v].valid()) continue;
    return usage_error("--micro-batches: output '" + graph.values[v].name +
                       "' is the next value of input '" + graph.value(updated[v]).name +
                       "' (--updates " + updates +
                       "), and micro-batches hand nothing on; rename it, or try --micro-batches 1 "
                       "without --stages");
  }
  return Ok{};
}

// Per value whether it depends on data that is cut.
std::vector<char> made_of_cut(const Graph& graph, const std::vector<MicroInput>& cut) {
  std::vector<char> found(graph.values.size());
  for (ValueId input : graph.inputs) {
    const std::string& name = graph.value(input).name;
    found[input.index()] = std::any_of(cut.begin(), cut.end(),
                                       [&](const MicroInput& one) { return one.name == name; });
  }
  for (const Op& op : graph.ops) {
    const bool depends = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
      return id.valid() && found[id.index()] != 0;
    });
    for (ValueId output : op.outputs) {
      if (depends && output.valid()) found[output.index()] = 1;
    }
  }
  return found;
}

Error no_batch(const std::string& output, const Shape& shape) {
  return input_error("--micro-batches: output '" + output + "' " + to_text(shape) +
                     " has no dimension of the batch, along which those of micro-batches could be "
                     "put together; take it out of the model, or try --micro-batches 1");
}

// The factors of each dimension of what an op makes.
TensorFactors output_factors(const Graph& graph, const GraphRules& rules, ValueId output) {
  const OpId maker = graph.value(output).producer;
  const Op& op = graph.op(maker);
  const auto port = static_cast<std::size_t>(
      std::find(op.outputs.begin(), op.outputs.end(), output) - op.outputs.begin());
  const Rule& rule = rules.rules[maker.index()];
  return port < rule.outputs.size() ? rule.outputs[port] : TensorFactors();
}

Result<std::vector<StepOutput>> outputs_of(const Graph& whole, const Graph& part,
                                           const std::vector<MicroInput>& cut,
                                           std::int64_t micro_batches) {
  const std::vector<char> depends = made_of_cut(part, cut);
  std::vector<StepOutput> outputs;
  for (std::size_t o = 0; o < part.outputs.size(); ++o) {
    const Value& value = part.value(part.outputs[o]);
    const Shape& full = whole.value(whole.outputs[o]).shape;
    StepOutput output{value.name, Combining::kLast};
    bool fits = full.size() == value.shape.size(), grows = false;
    for (std::size_t d = 0; fits && d < full.size(); ++d) {
      if (full[d] == value.shape[d]) continue;
      fits = !grows && full[d] == value.shape[d] * micro_batches;
      grows = true;
      output.combining = Combining::kConcat;
      output.dimension = static_cast<std::int64_t>(d);
    }
    const bool is_of_all = micro_batches > 1 && !grows && depends[part.outputs[o].index()] != 0;
    if (!fits || is_of_all) {
      return no_batch(value.name, full);
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

// Where there is no model of the whole batch: each input with the dimension is cut there, and each
// output is put together along what runs with the batch.
Status take_by_rules(const TrainingChoice& choice, ModelPasses& passes) {
  const Graph& graph = passes.model.graph;
  const std::size_t dim = choice.batch_dim;
  for (ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (value.kind != ValueKind::kInput || value.shape.size() <= dim) continue;
    passes.inputs.push_back({value.name, static_cast<std::int64_t>(dim)});
  }
  AUTOPAR_TRY(rules, rules_of(graph));
  const std::vector<int> factors = batch_factors(graph, rules, static_cast<int>(dim));
  const std::vector<char> depends = made_of_cut(graph, passes.inputs);
  for (ValueId output : graph.outputs) {
    const Value& value = graph.value(output);
    StepOutput found{value.name, Combining::kLast};
    const OpId maker = value.producer;
    const auto dims = maker.valid() ? output_factors(graph, rules, output) : TensorFactors();
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const bool is_along = !dims[d].empty() && dims[d].front() == factors[maker.index()];
      if (!is_along || found.combining == Combining::kConcat) continue;
      found = {value.name, Combining::kConcat, static_cast<std::int64_t>(d)};
    }
    if (found.combining == Combining::kLast && depends[output.index()] != 0) {
      return no_batch(value.name, value.shape);
    }
    passes.outputs.push_back(std::move(found));
  }
  return Ok{};
}

}  // namespace

Result<ModelPasses> model_in_passes(const std::string& model, const TrainingChoice& choice,
                                    const CommonOptions& common, const std::string& updates) {
  TrainingChoice asked = choice;
  asked.least_opset = 0;
  asked.options.freeze = {"*"};  // weights that repeat along the batch can be cut
  AUTOPAR_TRY(import_options, import_options_of(asked, common));
  import_options.updates = updates;
  const auto whole = import_on_batch(model, import_options);
  // Constants may say another batch, and that of a micro-batch all the same.
  const bool may_lack_whole = choice.batch > 0 && choice.micro_batches != "1" && !whole &&
                              whole.error().code == ErrorCode::kInput;
  if (!whole && !may_lack_whole) return whole.error();
  ModelPasses passes;
  if (whole) {
    AUTOPAR_RETURN_IF_ERROR(check_hands_nothing_on(whole->graph, updates));
    AUTOPAR_TRY(batch, batch_of(whole->graph, choice.batch_dim));
    passes.batch = batch;
  } else {
    passes.batch = choice.batch;
    passes.why_no_whole = whole.error().message + "; planned as micro-batches";
  }
  AUTOPAR_TRY(counts, micro_batches_of(choice.micro_batches, passes.batch));
  std::int64_t count = 0;
  Result<ImportedModel> part = whole;
  for (const std::int64_t tried : counts) {
    count = tried;
    asked.batch = passes.batch / count;
    asked.whole_batch = passes.batch;
    if (count > 1) part = import_forward(model, asked, common);
    if (part) break;  // the first of those that `auto` tries
  }
  if (!part) return whole ? part.error() : whole.error();
  passes.model = std::move(*part);
  if (whole) passes.model.sha256 = whole->sha256;
  if (!whole) passes.model.warnings.push_back(passes.why_no_whole);
  Graph& graph = passes.model.graph;
  graph.passes = count;
  graph.accumulates = count == 1;
  if (!whole) {
    AUTOPAR_RETURN_IF_ERROR(check_hands_nothing_on(graph, updates));
    AUTOPAR_RETURN_IF_ERROR(take_by_rules(choice, passes));
    return passes;
  }
  std::vector<std::string> data;
  for (ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (value.kind == ValueKind::kInput) data.push_back(value.name);
  }
  AUTOPAR_TRY(cut, cut_inputs(whole->graph, graph, data, count));
  passes.inputs = std::move(cut);
  AUTOPAR_TRY(outputs, outputs_of(whole->graph, graph, passes.inputs, count));
  passes.outputs = std::move(outputs);
  if (count > 1) {
    asked.batch = passes.batch;
    AUTOPAR_TRY(mixing_op, mixing_op_of(passes.model, model, asked, common, count));
    passes.mixing_op = std::move(mixing_op);
  }
  return passes;
}

}  // namespace autopar
