#include <filesystem>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "io/export/external_data.hpp"
#include "io/export/model_bytes.hpp"
#include "io/export/model_proto.hpp"
#include "io/export/programs.hpp"

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

std::string training_json(const TrainingStep& step) {
  const TrainingFacts& facts = step.facts;
  const nlohmann::ordered_json document = {{"version", 1},
                                           {"optimizer", numbers_of(step.options)},
                                           {"precision", name_of(step.options.precision)},
                                           {"loss", facts.loss},
                                           {"data", facts.data},
                                           {"parameters", facts.parameters},
                                           {"states", facts.states},
                                           {"statistics", facts.statistics},
                                           {"frozen", facts.frozen},
                                           {"unreached", facts.unreached}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

}  // namespace

Result<std::string> training_step_bytes(const TrainingStep& step, const std::string& where) {
  Result<LeanModel> lean = lean_model_of(step.graph);
  if (!lean) return input_error(where + ": " + lean.error().message);
  const auto add = [&](const char* key, const std::string& value) {
    auto* entry = lean->proto.add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("data_inputs", joined(step.facts.data));
  add("autopar.training", training_json(step));
  AUTOPAR_RETURN_IF_ERROR(check_onnx(lean->proto, where));
  return model_bytes(*lean, where);
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
