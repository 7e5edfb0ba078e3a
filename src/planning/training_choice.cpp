#include "planning/training_choice.hpp"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/import.hpp"
#include "autopar/pattern.hpp"
#include "autopar/rebatch.hpp"
#include "json/parse.hpp"
#include "planning/inputs.hpp"
#include "planning/logging.hpp"
#include "planning/unlike_whole.hpp"
#include "planning/weights_fit.hpp"
#include "support/counted.hpp"

namespace autopar {

namespace {

// All of the text; nothing where it is another one, such as auto.
std::optional<std::int64_t> number_of(const std::string& text) {
  std::int64_t number = 0;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && at == text.data() + text.size();
  return is_number ? std::optional(number) : std::nullopt;
}

// "0.9,0.999"
Status read_betas(const std::string& text, TrainingOptions& options) {
  const std::size_t comma = text.find(',');
  const auto number = [](const std::string& part, double& value) {
    const char* end = part.data() + part.size();
    const auto [at, error] = std::from_chars(part.data(), end, value);
    return error == std::errc{} && at == end && value >= 0 && value < 1;
  };
  if (comma != std::string::npos && number(text.substr(0, comma), options.beta1) &&
      number(text.substr(comma + 1), options.beta2)) {
    return Ok{};
  }
  return usage_error("--betas '" + text + "': expected two numbers below 1, as in 0.9,0.999");
}

std::string names(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& name : list) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::vector<std::string> split_list(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts) {
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t comma = std::min(text.find(',', begin), text.size());
      if (comma > begin) parts.push_back(text.substr(begin, comma - begin));
      begin = comma + 1;
    }
  }
  return parts;
}

Result<ImportOptions> import_options_of(const TrainingChoice& choice, const CommonOptions& common) {
  ImportOptions options;
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  options.dims = dims;
  options.batch = choice.batch;
  options.batch_dim = choice.batch_dim;
  const std::vector<std::string> data = split_list(choice.data_inputs);
  if (!data.empty()) options.data_inputs = data;
  options.parameters = split_list(choice.options.parameters);
  return options;
}

Result<TrainingOptions> training_options_of(const TrainingChoice& choice) {
  TrainingOptions options = choice.options;
  options.optimizer = *parse_optimizer(choice.optimizer);
  options.precision = *parse_precision(choice.precision);
  if (choice.reduce_precision != "auto") {
    options.reduce = choice.reduce_precision == "fp32"   ? DType::kFloat32
                     : choice.reduce_precision == "bf16" ? DType::kBFloat16
                                                         : DType::kFloat16;
  }
  options.op_takes = op_takes;
  options.dropout = choice.dropout == "on";
  options.mean_gradients = choice.gradients == "mean";
  options.parameters = split_list(options.parameters);
  options.freeze = split_list(options.freeze);
  if (!choice.betas.empty()) AUTOPAR_RETURN_IF_ERROR(read_betas(choice.betas, options));
  return options;
}

namespace {

// A model whose constants say its own batch, with another.
Result<ImportedModel> import_rebatched(const std::string& model, const TrainingChoice& choice,
                                       ImportOptions import_options, const Error& first) {
  import_options.batch = 0;
  auto own = import_model(model, import_options);
  if (!own) return first;  // a symbol says the batch: there is none to follow
  ImportedModel forward = std::move(*own);
  AUTOPAR_TRY(rules, rules_of(forward.graph));
  AUTOPAR_TRY(options, training_options_of(choice));
  const auto is_frozen = [&options](const std::string& weight) {
    const std::vector<std::string>& trained = options.parameters;
    return any_matches(options.freeze, weight) ||
           (!trained.empty() && !any_matches(trained, weight));
  };
  auto rebatched =
      rebatch(std::move(forward.graph), rules, choice.batch_dim, choice.batch, is_frozen);
  const auto why = [&](const Error& error) {
    const bool names_it = error.message.rfind(model + ": ", 0) == 0;
    return input_error((names_it ? "" : model + ": ") + error.message + ", so --batch " +
                       std::to_string(choice.batch) +
                       " cannot take the place of the model's own batch; export the model with a "
                       "symbolic batch, or with that one (as it stands: " +
                       first.message + ")");
  };
  if (!rebatched) return why(rebatched.error());
  auto imported = import_graph(rebatched->graph, model);
  if (!imported) return why(imported.error());
  std::string some;
  for (std::size_t i = 0; i < std::min<std::size_t>(rebatched->restated.size(), 3); ++i) {
    some += (i > 0 ? ", '" : "'") + rebatched->restated[i] + "'";
  }
  imported->sha256 = forward.sha256;
  imported->ops_of_user_op = forward.ops_of_user_op;
  imported->warnings = forward.warnings;
  imported->warnings.push_back(model + ": constants say its own batch; with --batch " +
                               std::to_string(choice.batch) + " those of " +
                               std::to_string(rebatched->restated.size()) + " ops say that (" +
                               some + (rebatched->restated.size() > 3 ? ", ..." : "") + ")");
  return imported;
}

}  // namespace

Result<ImportedModel> import_on_batch(const std::string& model, const ImportOptions& options) {
  Result<ImportedModel> imported = import_model(model, options);
  if (!imported || options.batch == 0) return imported;
  ImportOptions as_it_is = options;
  as_it_is.batch = 0;
  const auto own = import_model(model, as_it_is);
  if (!own) return imported;  // a symbol says the batch
  AUTOPAR_TRY(op, op_of_own_batch(own->graph, imported->graph, options.batch_dim));
  if (!op) return imported;
  return input_error(
      model + ": " + *op +
      ": its constant says the model's own batch, which mixes, repeats or leaves out samples "
      "with --batch " +
      std::to_string(options.batch) + "; export the model with a symbolic batch");
}

Result<ImportedModel> import_forward(const std::string& model, const TrainingChoice& choice,
                                     const CommonOptions& common) {
  AUTOPAR_TRY(import_options, import_options_of(choice, common));
  import_options.least_opset = choice.least_opset;
  import_options.whole_batch = choice.whole_batch;
  Result<ImportedModel> imported = import_on_batch(model, import_options);
  // A batch that the file does not have is refused, but for passes on parts of one that it has.
  const bool may_follow =
      choice.micro_batches != "1" || choice.options.update_apart || choice.follows_batch;
  if (imported || !may_follow || choice.batch == 0 || imported.error().code != ErrorCode::kInput) {
    return imported;
  }
  return import_rebatched(model, choice, std::move(import_options), imported.error());
}

namespace {

Result<TrainingStep> step_of(ImportedModel forward, const TrainingOptions& options) {
  const std::string path = forward.path;
  Result<TrainingStep> step = training_step(std::move(forward.graph), options);
  if (step) step->ops_of_user_op = *forward.ops_of_user_op;
  if (step || step.error().code != ErrorCode::kInput) return step;
  return input_error(path + ": " + step.error().message);
}

}  // namespace

Result<TrainingStep> make_training_step(const std::string& model, const TrainingChoice& choice,
                                        const CommonOptions& common) {
  AUTOPAR_TRY(options, training_options_of(choice));
  options.update_apart = false;
  options.stands_for_passes = number_of(choice.micro_batches).value_or(options.stands_for_passes);
  AUTOPAR_TRY(forward, import_forward(model, choice, common));
  tell_of_import(forward);
  for (const std::string& warning : forward.warnings) logging::warn("warning: {}", warning);
  AUTOPAR_TRY(step, step_of(std::move(forward), options));
  AUTOPAR_RETURN_IF_ERROR(check_weights_from(choice.weights_from, step, model));
  tell_of_training(step);
  return std::move(step);
}

Status check_copies(const TrainingChoice& choice) {
  const std::string option = "--copies " + std::to_string(choice.copies);
  if (choice.copies < 1) return usage_error(option + ": expected 1 or more");
  if (choice.copies == 1) return Ok{};
  const std::string& text = choice.micro_batches;
  const std::int64_t passes = number_of(text).value_or(0);
  if (passes > 0 && passes % choice.copies == 0) return Ok{};
  return usage_error(option + ": goes with a number of --micro-batches that it divides, such as " +
                     std::to_string(2 * choice.copies) + ", not with " + text);
}

Result<std::int64_t> batch_of(const Graph& graph, std::size_t batch_dim) {
  for (ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (value.kind == ValueKind::kInput && value.shape.size() > batch_dim) {
      return value.shape[batch_dim];
    }
  }
  return usage_error("--micro-batches: no data input has a dimension " + std::to_string(batch_dim) +
                     " that could be cut");
}

void LeftOutPasses::tell(std::int64_t passes, const Error& why) {
  const std::string what =
      "--micro-batches auto: " + counted(static_cast<std::size_t>(passes), "pass", "passes");
  if (told_ == why.message) return logging::debug("{}: left out, too", what);
  told_ = why.message;
  logging::warn("warning: {} left out, and others like that: {}", what, told_);
}

Result<std::vector<std::int64_t>> micro_batches_of(const std::string& option, std::int64_t batch) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= batch; ++d) {
    if (batch % d == 0) divisors.push_back(d);
  }
  if (option == "auto") return divisors;
  const std::int64_t count = number_of(option).value_or(0);
  if (count < 1) {
    return usage_error("--micro-batches '" + option + "': expected a number, or auto");
  }
  if (batch % count == 0) return std::vector{count};
  std::string list;
  for (std::int64_t d : divisors) list += (list.empty() ? "" : ", ") + std::to_string(d);
  return usage_error("--micro-batches " + option + " does not divide the batch of " +
                     std::to_string(batch) + "; what does: " + list);
}

// What runs over a batch of 1 its rules do not show: the model is then asked with the whole batch.
// Where it cannot be had so, there is no pass over the whole batch to compare with.
Result<std::optional<std::string>> mixing_op_of(const ImportedModel& pass, const std::string& model,
                                                const TrainingChoice& choice,
                                                const CommonOptions& common,
                                                std::int64_t micro_batches) {
  const auto found = [&](const Graph& graph) -> Result<std::optional<std::string>> {
    AUTOPAR_TRY(rules, rules_of(graph));
    return batch_mixing_op(graph, rules, choice.batch_dim);
  };
  if (choice.batch > micro_batches) return found(pass.graph);
  const auto whole = import_forward(model, choice, common);
  return found(whole ? whole->graph : pass.graph);
}

Result<SplitStep> split_passes(const std::string& model, const TrainingChoice& choice,
                               const CommonOptions& common, std::int64_t micro_batches) {
  AUTOPAR_TRY(options, training_options_of(choice));
  options.micro_batches = micro_batches;
  TrainingChoice part = choice;
  part.batch = choice.batch / micro_batches;
  part.whole_batch = choice.batch;
  AUTOPAR_TRY(forward, import_forward(model, part, common));
  AUTOPAR_TRY(mixing_op, mixing_op_of(forward, model, choice, common, micro_batches));
  AUTOPAR_TRY(step, step_of(std::move(forward), options));
  SplitStep split{std::move(step), {}, std::move(mixing_op)};
  for (ValueId input : split.step.graph.inputs) {
    const Value& value = split.step.graph.value(input);
    const bool cut = value.kind == ValueKind::kInput && value.shape.size() > choice.batch_dim;
    if (cut) split.inputs.push_back({value.name, static_cast<std::int64_t>(choice.batch_dim)});
  }
  return split;
}

namespace {

const Value* value_named(const Graph& graph, const std::string& name) {
  const auto found = std::find_if(graph.values.begin(), graph.values.end(),
                                  [&](const Value& value) { return value.name == name; });
  return found == graph.values.end() ? nullptr : &*found;
}

// What an op casts, views or adds up; invalid: it does something else.
ValueId passed_on(const Op& op) {
  for (const char* type : {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Neg",
                           "ReduceSum", "ReduceMean"}) {
    if (op.type == type) return op.inputs[0];
  }
  return ValueId();
}

bool adds_labels(const SplitStep& split, const std::string& loss) {
  const bool may_be = loss.rfind("mse", 0) == 0 || loss.rfind("cross_entropy", 0) == 0;
  return may_be && split.step.facts.loss == "loss";
}

// A loss that is added to what the model has made of all samples is none of a part of them.
Status check_labels_are_cut(const SplitStep& split, const std::string& loss) {
  if (!adds_labels(split, loss)) return Ok{};
  for (const MicroInput& input : split.inputs) {
    if (input.name == "labels") return Ok{};
  }
  return usage_error("--micro-batches: the output that --loss " + loss +
                     " is of has no dimension of the batch: the model adds up its samples, and the "
                     "loss of all is not that of its parts; a loss of the model's own is --loss "
                     "NAME, or try --micro-batches 1");
}

// Losses of the passes are averaged or added up, as the model's own do the samples of one: where
// that can be told, since all behind the op that does it only views or adds up.
Status check_combining(const TrainingStep& whole, const SplitStep& split, const std::string& loss) {
  const Graph& graph = split.step.graph;
  const LossCombining combining = split.step.facts.loss_combining;
  if (combining == LossCombining::kLast || adds_labels(split, loss)) return Ok{};
  ValueId at = graph.outputs.front();
  while (at.valid() && graph.value(at).producer.valid()) {
    const Op& op = graph.op(graph.value(at).producer);
    at = passed_on(op);
    const bool adds = op.type == "ReduceSum";
    if (!at.valid() || (!adds && op.type != "ReduceMean")) continue;
    const Value &all = graph.value(at), &one = graph.value(op.outputs[0]);
    const Value* whole_all = value_named(whole.graph, all.name);
    const Value* whole_one = value_named(whole.graph, one.name);
    if (whole_all == nullptr || whole_one == nullptr) return Ok{};
    if (whole_all->shape == all.shape || whole_one->shape != one.shape) continue;
    if (adds == (combining == LossCombining::kSum)) return Ok{};
    const std::string output = loss.rfind("sum:", 0) == 0 ? loss.substr(4) : split.step.facts.loss;
    const Value* told = value_named(graph, output);
    const bool is_number = told != nullptr && element_count(told->shape) == 1;
    return usage_error("--micro-batches: op '" + op.name + "' (" + op.type + ") " +
                       (adds ? "adds up" : "averages over") + " the samples, and the losses of " +
                       "micro-batches are " + (adds ? "averaged" : "added up") + "; try " +
                       (is_number ? std::string("--loss ") + (adds ? "sum:" : "") + output
                                  : std::string("--micro-batches 1")));
  }
  return Ok{};
}

}  // namespace

Result<std::vector<MicroInput>> cut_inputs(const Graph& whole, const Graph& part,
                                           const std::vector<std::string>& data,
                                           std::int64_t micro_batches) {
  std::map<std::string, Shape> shapes;
  for (ValueId input : whole.inputs) shapes[whole.value(input).name] = whole.value(input).shape;
  std::vector<MicroInput> cut;
  for (const std::string& name : data) {
    for (ValueId input : part.inputs) {
      const Value& value = part.value(input);
      if (value.name != name) continue;
      const Shape& full = shapes[name];
      for (std::size_t d = 0; d < full.size(); ++d) {
        if (full[d] == value.shape[d]) continue;
        if (full[d] != value.shape[d] * micro_batches) {
          return usage_error("--micro-batches: dimension " + std::to_string(d) + " of input '" +
                             name + "' is " + std::to_string(full[d]) + " of the whole batch and " +
                             std::to_string(value.shape[d]) + " of one of " +
                             std::to_string(micro_batches) + " parts of it");
        }
        cut.push_back({name, static_cast<std::int64_t>(d)});
        break;
      }
    }
  }
  return cut;
}

Result<SplitStep> split_step(const std::string& model, const TrainingChoice& choice,
                             const CommonOptions& common, const TrainingStep& whole,
                             std::int64_t micro_batches) {
  AUTOPAR_TRY(batch, batch_of(whole.graph, choice.batch_dim));
  TrainingChoice of_batch = choice;
  of_batch.batch = batch;
  AUTOPAR_TRY(split, split_passes(model, of_batch, common, micro_batches));
  AUTOPAR_TRY(cut, cut_inputs(whole.graph, split.step.graph, split.step.facts.data, micro_batches));
  split.inputs = std::move(cut);
  if (micro_batches == 1) return split;
  if (!split.mixing_op) {
    const bool averages = split.step.facts.loss_combining != LossCombining::kSum;
    AUTOPAR_TRY(unlike, op_unlike_whole(whole.graph, split.step.graph, split.inputs,
                                        choice.batch_dim, averages));
    split.mixing_op = std::move(unlike);
    // Losses that are added count what they average over.
    if (!split.mixing_op && !adds_labels(split, choice.options.loss)) {
      split.mixing_op = op_not_of_parts(whole.graph, split.step.graph, split.inputs, averages);
    }
  }
  AUTOPAR_RETURN_IF_ERROR(check_labels_are_cut(split, choice.options.loss));
  AUTOPAR_RETURN_IF_ERROR(check_combining(whole, split, choice.options.loss));
  return split;
}

std::string training_text(const TrainingStep& step, const TrainingChoice& choice) {
  auto document = nlohmann::ordered_json::parse(training_json(step));
  const std::vector<std::string> data = split_list(choice.data_inputs);
  if (!data.empty()) document["asked"]["data_inputs"] = data;
  if (choice.batch > 0) document["asked"]["batch"] = choice.batch;
  if (choice.batch_dim > 0) document["asked"]["batch_dim"] = choice.batch_dim;
  return document.dump();
}

Result<TrainingChoice> training_choice_of(const StrategyFile& file) {
  const std::string where = file.path + ": training";
  TrainingChoice choice;
  AUTOPAR_TRY(options, read_training(file.training, where));
  choice.options = std::move(options);
  choice.optimizer = name_of(choice.options.optimizer);
  choice.precision = name_of(choice.options.precision);
  choice.dropout = choice.options.dropout ? "on" : "off";
  choice.gradients = choice.options.mean_gradients ? "mean" : "sum";
  choice.micro_batches = std::to_string(file.micro_batches);
  choice.options.update_apart = file.has_passes;
  choice.copies = file.copies;
  AUTOPAR_TRY(document, parse_json(file.training, where));
  try {
    const nlohmann::json asked = object_at(document, "asked");
    choice.data_inputs = asked.value("data_inputs", choice.data_inputs);
    choice.batch = asked.value("batch", choice.batch);
    choice.batch_dim = asked.value("batch_dim", choice.batch_dim);
    choice.follows_batch = true;
  } catch (const nlohmann::json::exception& error) {
    return input_error(where + ": " + message_of(error));
  }
  return choice;
}

void tell_of_training(const TrainingStep& step) {
  const TrainingFacts& facts = step.facts;
  logging::info("training step: {}, loss '{}', {}, {}, {}, {}",
                counted(step.graph.ops.size(), "op"), facts.loss,
                counted(facts.data.size(), "data input"),
                counted(facts.parameters.size(), "parameter"),
                counted(facts.states.size(), "optimizer state"),
                counted(facts.statistics.size(), "running statistic"));
  logging::debug("parameters: {}", names(facts.parameters));
  if (!facts.statistics.empty()) logging::debug("running statistics: {}", names(facts.statistics));
  if (!facts.frozen.empty()) logging::debug("frozen: {}", names(facts.frozen));
  if (!facts.unreached.empty()) {
    logging::warn("warning: no gradient reaches {}: not trained", names(facts.unreached));
  }
  for (const std::string& warning : step.warnings) logging::warn("warning: {}", warning);
}

}  // namespace autopar
