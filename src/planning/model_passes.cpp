#include "planning/model_passes.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "autopar/search.hpp"
#include "planning/unlike_whole.hpp"

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

// The factors of each dimension of what an op makes; of what is given none.
TensorFactors output_factors(const Graph& graph, const GraphRules& rules, ValueId output) {
  const OpId maker = graph.value(output).producer;
  if (!maker.valid()) return {};
  const Op& op = graph.op(maker);
  const auto port = static_cast<std::size_t>(
      std::find(op.outputs.begin(), op.outputs.end(), output) - op.outputs.begin());
  const Rule& rule = rules.rules[maker.index()];
  return port < rule.outputs.size() ? rule.outputs[port] : TensorFactors();
}

Error no_batch(const Value& output) {
  return input_error("--micro-batches: output '" + output.name + "' " + to_text(output.shape) +
                     " has no dimension along which micro-batches could be put together, with the "
                     "samples outermost there; take it out of the model, or try --micro-batches 1");
}

// The dimension of an output along which the samples are the outermost; -1: there is none, or it is
// not known. `factor`: of its op, along the batch; `full`: as the whole batch has it, where that is
// known.
std::int64_t batch_dimension(const TensorFactors& dims, int factor, const Shape& part,
                             const std::optional<Shape>& full, std::int64_t micro_batches) {
  std::int64_t grows = -1;
  for (std::size_t d = 0; full && full->size() == part.size() && d < part.size(); ++d) {
    if ((*full)[d] == part[d]) continue;
    if (grows >= 0 || (*full)[d] != part[d] * micro_batches) return -1;
    grows = static_cast<std::int64_t>(d);
  }
  for (std::size_t d = 0; factor >= 0 && d < dims.size(); ++d) {
    if (std::find(dims[d].begin(), dims[d].end(), factor) == dims[d].end()) continue;
    const auto along = static_cast<std::int64_t>(d);
    return dims[d].front() == factor && (!full || grows == along) ? along : -1;
  }
  return grows;
}

// Whether an output that depends on no data is the same of all micro-batches together.
bool is_the_same(const Value& whole, const Value& part) {
  if (whole.shape != part.shape) return false;
  const bool are_known = whole.tensor() != nullptr && part.tensor() != nullptr;
  return !are_known || *whole.tensor() == *part.tensor();
}

// How each output of micro-batches becomes that of the batch.
Status take_outputs(const Graph* whole, std::size_t batch_dim, ModelPasses& passes) {
  const Graph& graph = passes.model.graph;
  AUTOPAR_TRY(rules, rules_of(graph));
  const std::vector<int> factors = batch_factors(graph, rules, static_cast<int>(batch_dim));
  const std::vector<char> depends = made_of_cut(graph, passes.inputs);
  for (std::size_t o = 0; o < graph.outputs.size(); ++o) {
    const ValueId output = graph.outputs[o];
    const Value& value = graph.value(output);
    StepOutput found{value.name, Combining::kLast};
    if (graph.passes > 1 && depends[output.index()] != 0) {
      const int factor = value.producer.valid() ? factors[value.producer.index()] : -1;
      std::optional<Shape> full;
      if (whole != nullptr) full = whole->value(whole->outputs[o]).shape;
      found.combining = Combining::kConcat;
      found.dimension = batch_dimension(output_factors(graph, rules, output), factor, value.shape,
                                        full, graph.passes);
      if (found.dimension < 0) return no_batch(value);
    } else if (whole != nullptr && !is_the_same(whole->value(whole->outputs[o]), value)) {
      return no_batch(value);
    }
    passes.outputs.push_back(std::move(found));
  }
  return Ok{};
}

// Data is cut along the batch: where there is no model of the whole batch, whatever has the
// dimension.
Status take_inputs(const Graph* whole, std::size_t batch_dim, ModelPasses& passes) {
  const Graph& graph = passes.model.graph;
  std::vector<std::string> data;
  for (ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (value.kind != ValueKind::kInput) continue;
    data.push_back(value.name);
    if (whole != nullptr || value.shape.size() <= batch_dim) continue;
    passes.inputs.push_back({value.name, static_cast<std::int64_t>(batch_dim)});
  }
  if (whole == nullptr) return Ok{};
  AUTOPAR_TRY(cut, cut_inputs(*whole, graph, data, graph.passes));
  passes.inputs = std::move(cut);
  return Ok{};
}

// What is there for the whole batch.
void mark_batch(ModelPasses& passes) {
  Graph& graph = passes.model.graph;
  std::set<std::string> names;
  for (const MicroInput& input : passes.inputs) names.insert(input.name);
  for (const StepOutput& output : passes.outputs) {
    if (output.combining == Combining::kConcat) names.insert(output.name);
  }
  for (Value& value : graph.values) value.of_batch = names.count(value.name) != 0;
}

// The model on one of the micro-batches, of the first number of them that it can be had with.
Status import_part(const std::string& model, const Result<ImportedModel>& whole,
                   const TrainingChoice& choice, const CommonOptions& common, ModelPasses& passes) {
  AUTOPAR_TRY(counts, micro_batches_of(choice.micro_batches, passes.batch));
  Result<ImportedModel> part = whole;
  std::int64_t count = 0;
  for (const std::int64_t tried : counts) {
    TrainingChoice asked = choice;
    asked.batch = passes.batch / (count = tried);
    asked.whole_batch = passes.batch;
    if (count > 1) part = import_forward(model, asked, common);
    if (part) break;
  }
  if (!part) return whole ? part.error() : whole.error();
  passes.model = std::move(*part);
  passes.model.graph.passes = count;
  passes.model.graph.accumulates = count == 1;
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
  ModelPasses passes;
  passes.has_whole_batch = whole.ok();
  passes.batch = choice.batch;
  // Constants may say another batch, and that of a micro-batch all the same.
  const bool may_lack_whole = choice.batch > 0 && choice.micro_batches != "1";
  if (!whole && (!may_lack_whole || whole.error().code != ErrorCode::kInput)) return whole.error();
  if (whole) {
    AUTOPAR_TRY(batch, batch_of(whole->graph, choice.batch_dim));
    passes.batch = batch;
  }
  AUTOPAR_RETURN_IF_ERROR(import_part(model, whole, asked, common, passes));
  const Graph& graph = passes.model.graph;
  AUTOPAR_RETURN_IF_ERROR(check_hands_nothing_on(graph, updates));
  const Graph* of_whole = whole ? &whole->graph : nullptr;
  AUTOPAR_RETURN_IF_ERROR(take_inputs(of_whole, choice.batch_dim, passes));
  AUTOPAR_RETURN_IF_ERROR(take_outputs(of_whole, choice.batch_dim, passes));
  mark_batch(passes);
  if (!whole) {
    passes.model.warnings.push_back(whole.error().message + "; planned as micro-batches");
    return passes;
  }
  passes.model.sha256 = whole->sha256;
  if (graph.passes == 1) return passes;
  asked.batch = passes.batch;
  AUTOPAR_TRY(mixing_op, mixing_op_of(passes.model, model, asked, common, graph.passes));
  if (!mixing_op) {
    AUTOPAR_TRY(unlike,
                op_unlike_whole(whole->graph, graph, passes.inputs, choice.batch_dim, false));
    mixing_op = std::move(unlike);
  }
  passes.mixing_op = std::move(mixing_op);
  return passes;
}

}  // namespace autopar
