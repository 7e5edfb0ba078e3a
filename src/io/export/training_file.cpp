#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/training_roles.hpp"
#include "io/export/external_data.hpp"
#include "io/export/model_bytes.hpp"
#include "io/export/model_proto.hpp"
#include "io/export/programs.hpp"
#include "io/import/import_file.hpp"
#include "json/parse.hpp"

namespace autopar {
namespace {

nlohmann::ordered_json numbers_of(const TrainingOptions& options) {
  nlohmann::ordered_json numbers = {{"name", name_of(options.optimizer)}};
  if (options.optimizer == Optimizer::kNone) return numbers;
  numbers["learning_rate"] = options.learning_rate;
  if (options.optimizer == Optimizer::kMomentum) numbers["momentum"] = options.momentum;
  if (options.optimizer == Optimizer::kAdam || options.optimizer == Optimizer::kAdamW) {
    numbers["betas"] = {options.beta1, options.beta2};
    numbers["eps"] = options.epsilon;
  }
  const double decay = options.optimizer == Optimizer::kAdamW ? 0.01 : 0;
  numbers["weight_decay"] = options.weight_decay.value_or(decay);
  if (options.clip_norm > 0) numbers["clip_norm"] = options.clip_norm;
  return numbers;
}

// Where it is not what goes without saying.
nlohmann::ordered_json asked_for(const TrainingOptions& options) {
  nlohmann::ordered_json asked = nlohmann::ordered_json::object();
  if (!options.loss.empty()) asked["loss"] = options.loss;
  if (!options.parameters.empty()) asked["parameters"] = options.parameters;
  if (!options.freeze.empty()) asked["freeze"] = options.freeze;
  if (options.reduce) asked["reduce_precision"] = name_of(*options.reduce);
  if (!options.dropout) asked["dropout"] = "off";
  if (!options.mean_gradients) asked["gradients"] = "sum";
  return asked;
}

}  // namespace

std::string training_json(const TrainingStep& step) {
  const TrainingFacts& facts = step.facts;
  nlohmann::ordered_json document = {{"version", 1},
                                     {"optimizer", numbers_of(step.options)},
                                     {"precision", name_of(step.options.precision)},
                                     {"loss", facts.loss},
                                     {"data", facts.data},
                                     {"parameters", facts.parameters},
                                     {"states", facts.states},
                                     {"statistics", facts.statistics},
                                     {"frozen", facts.frozen},
                                     {"unreached", facts.unreached}};
  if (auto asked = asked_for(step.options); !asked.empty()) document["asked"] = std::move(asked);
  if (step.graph.has_passes()) {
    document["micro_batches"] = step.graph.passes;
    document["accumulators"] = facts.accumulators;
    document["loss_combining"] = name_of(facts.loss_combining);
  }
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

Result<TrainingOptions> read_training(const std::string& text, const std::string& where) {
  AUTOPAR_TRY(document, parse_json(text, where));
  TrainingOptions options;
  try {
    const nlohmann::json& numbers = document.at("optimizer");
    const auto optimizer = parse_optimizer(numbers.at("name").get<std::string>());
    const auto precision = parse_precision(document.at("precision").get<std::string>());
    if (!optimizer || !precision) return input_error(where + ": an unknown optimizer or precision");
    options.optimizer = *optimizer;
    options.precision = *precision;
    options.learning_rate = numbers.value("learning_rate", options.learning_rate);
    options.momentum = numbers.value("momentum", options.momentum);
    if (numbers.contains("betas")) {
      options.beta1 = numbers["betas"].at(0);
      options.beta2 = numbers["betas"].at(1);
    }
    options.epsilon = numbers.value("eps", options.epsilon);
    if (numbers.contains("weight_decay")) options.weight_decay = numbers["weight_decay"];
    options.clip_norm = numbers.value("clip_norm", options.clip_norm);
    const nlohmann::json asked = object_at(document, "asked");
    options.loss = asked.value("loss", std::string());
    options.parameters = asked.value("parameters", options.parameters);
    options.freeze = asked.value("freeze", options.freeze);
    options.reduce = parse_dtype(asked.value("reduce_precision", std::string()));
    options.dropout = asked.value("dropout", std::string("on")) == "on";
    options.mean_gradients = asked.value("gradients", std::string("mean")) == "mean";
  } catch (const nlohmann::json::exception& error) {
    return input_error(where + ": " + message_of(error) +
                       "; expected what `search --train` writes as \"training\"");
  }
  return options;
}

namespace {

// Errors start with `where`.
Result<LeanModel> model_of_step(const TrainingStep& step, const std::string& where) {
  Result<LeanModel> lean = lean_model_of(step.graph);
  if (!lean) return input_error(where + ": " + lean.error().message);
  const auto add = [&](const char* key, const std::string& value) {
    auto* entry = lean->proto.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("data_inputs", joined(step.facts.data));
  add(kTrainingKey, training_json(step));
  return lean;
}

}  // namespace

Result<std::string> training_step_bytes(const TrainingStep& step, const std::string& where) {
  AUTOPAR_TRY(lean, model_of_step(step, where));
  AUTOPAR_RETURN_IF_ERROR(check_onnx(lean.proto, where));
  return model_bytes(lean, where);
}

Result<ImportedModel> import_training_step(const TrainingStep& step, const std::string& path,
                                           const ImportOptions& options) {
  AUTOPAR_TRY(lean, model_of_step(step, path));
  ModelFile file;
  file.model = std::move(lean.proto);
  file.data_inputs.emplace(step.facts.data.begin(), step.facts.data.end());
  return import_file(std::move(file), path, options);
}

Result<ImportedModel> import_graph(const Graph& graph, const std::string& path) {
  Result<LeanModel> lean = lean_model_of(graph);
  if (!lean) return input_error(path + ": " + lean.error().message);
  std::vector<std::string> data;
  for (ValueId input : graph.inputs) {
    if (graph.value(input).kind == ValueKind::kInput) data.push_back(graph.value(input).name);
  }
  auto* entry = lean->proto.add_metadata_props();
  entry->set_key("data_inputs");
  entry->set_value(joined(data));
  AUTOPAR_RETURN_IF_ERROR(check_onnx(lean->proto, path));
  AUTOPAR_TRY(bytes, model_bytes(*lean, path));
  AUTOPAR_TRY(imported, import_model_bytes(bytes, path));
  // A file says the same of constants and of weights.
  std::set<std::string> constants;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kConstant) constants.insert(value.name);
  }
  for (Value& value : imported.graph.values) {
    const bool is_constant =
        value.kind == ValueKind::kParameter && constants.count(value.name) != 0;
    if (is_constant) value.kind = ValueKind::kConstant;
  }
  return std::move(imported);
}

Result<std::vector<std::string>> write_training_step(const TrainingStep& step,
                                                     const std::string& path,
                                                     const std::string& model_folder) {
  AUTOPAR_TRY(bytes, training_step_bytes(step, path));
  UnfinishedFiles files;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  AUTOPAR_TRY(warnings,
              place_external_data(step.graph, model_folder, folder.empty() ? "." : folder.string(),
                                  kLinkBytes, files));
  AUTOPAR_RETURN_IF_ERROR(write_file(files, path, bytes));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  return std::move(warnings);
}

}  // namespace autopar
