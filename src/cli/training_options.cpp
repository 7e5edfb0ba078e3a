#include "cli/training_options.hpp"

#include <spdlog/spdlog.h>

#include <charconv>

#include "autopar/import.hpp"
#include "cli/inputs.hpp"

namespace autopar::cli {

namespace {

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

void add_training_options(CLI::App& app, TrainingChoice& choice) {
  TrainingOptions& options = choice.options;
  app.option_defaults()->group(group::kReading);
  app.add_option("--data-inputs", choice.data_inputs,
                 "which inputs are data, where the file does not say; the others are parameters")
      ->type_name("NAME,...");
  app.add_option("--batch", choice.batch,
                 "samples of a step: the size of the data inputs' batch dimension, symbolic or not")
      ->check(CLI::PositiveNumber)
      ->type_name("NUMBER");
  app.add_option("--batch-dim", choice.batch_dim, "which dimension is the batch (default 0)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("NUMBER");
  app.option_defaults()->group(group::kTraining);
  app.add_option("--loss", options.loss,
                 "a scalar output by its name; or of an output (the first where it is not named) "
                 "cross_entropy[:OUTPUT], mse[:OUTPUT], sum[:OUTPUT]\n"
                 "`cross_entropy` takes logits [..., classes] and adds an input `labels` (int64; "
                 "-100: ignored), `mse` adds `labels` of the output's shape.")
      ->type_name("LOSS");
  app.add_option("--optimizer", choice.optimizer,
                 "sgd (default), momentum, adam, adamw; none: the gradients leave as they are")
      ->check(CLI::IsMember({"none", "sgd", "momentum", "adam", "adamw"}));
  app.add_option("--parameters", options.parameters,
                 "what is trained, by patterns with * and ? (default: all that can be)")
      ->type_name("PATTERN");
  app.add_option("--freeze", options.freeze, "what is not trained, by patterns")
      ->type_name("PATTERN");
  app.add_option("--lr", options.learning_rate,
                 "learning rate (default 0.001): what `run` feeds to the input learning_rate")
      ->type_name("NUMBER");
  app.add_option("--betas", choice.betas, "of adam and adamw (default 0.9,0.999)")
      ->type_name("B1,B2");
  app.add_option("--eps", options.epsilon, "of adam and adamw (default 1e-8)")
      ->check(CLI::PositiveNumber)
      ->type_name("NUMBER");
  app.add_option("--weight-decay", options.weight_decay,
                 "default 0.01 of adamw, else 0; added to the gradient but for adamw")
      ->check(CLI::NonNegativeNumber)
      ->type_name("NUMBER");
  app.add_option("--momentum", options.momentum, "of momentum (default 0.9)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("NUMBER");
  app.add_option("--clip-norm", options.clip_norm,
                 "scale all gradients where their common norm is above this")
      ->check(CLI::PositiveNumber)
      ->type_name("NUMBER");
  app.add_option(
         "--precision", choice.precision,
         "fp32: the model's own types (default); bf16, fp16: weights and passes in 16 bits; "
         "mixed-bf16, mixed-fp16: masters in float32, passes on 16-bit copies\n"
         "Updates and optimizer states are float32 in any case. fp16 scales the loss and "
         "leaves out steps with gradients that are not finite.")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "mixed-bf16", "mixed-fp16"}));
  app.add_option("--dropout", choice.dropout,
                 "on: as the model has it, with one mask for both passes (default); off: removed")
      ->check(CLI::IsMember({"on", "off"}));
}

Result<TrainingOptions> training_options_of(const TrainingChoice& choice) {
  TrainingOptions options = choice.options;
  options.optimizer = *parse_optimizer(choice.optimizer);
  options.precision = *parse_precision(choice.precision);
  options.op_takes = op_takes;
  options.dropout = choice.dropout == "on";
  options.parameters = split_list(options.parameters);
  options.freeze = split_list(options.freeze);
  if (!choice.betas.empty()) AUTOPAR_RETURN_IF_ERROR(read_betas(choice.betas, options));
  return options;
}

Result<TrainingStep> make_training_step(const std::string& model, const TrainingChoice& choice,
                                        const CommonOptions& common) {
  AUTOPAR_TRY(options, training_options_of(choice));
  ImportOptions import_options;
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  import_options.dims = dims;
  import_options.least_opset = 16;  // since when what is scattered can be added up
  import_options.batch = choice.batch;
  import_options.batch_dim = choice.batch_dim;
  const std::vector<std::string> data = split_list(choice.data_inputs);
  if (!data.empty()) import_options.data_inputs = data;
  AUTOPAR_TRY(forward, import_model(model, import_options));
  tell_of_import(forward);
  for (const std::string& warning : forward.warnings) spdlog::warn("warning: {}", warning);
  Result<TrainingStep> step = training_step(std::move(forward.graph), options);
  if (!step && step.error().code == ErrorCode::kInput) {
    return input_error(model + ": " + step.error().message);
  }
  if (step) tell_of_training(*step);
  return step;
}

void tell_of_training(const TrainingStep& step) {
  const TrainingFacts& facts = step.facts;
  spdlog::info(
      "training step: {} ops, loss '{}', {} data inputs, {} parameters, {} optimizer states, "
      "{} running statistics",
      step.graph.ops.size(), facts.loss, facts.data.size(), facts.parameters.size(),
      facts.states.size(), facts.statistics.size());
  spdlog::debug("parameters: {}", names(facts.parameters));
  if (!facts.statistics.empty()) spdlog::debug("running statistics: {}", names(facts.statistics));
  if (!facts.frozen.empty()) spdlog::debug("frozen: {}", names(facts.frozen));
  if (!facts.unreached.empty()) {
    spdlog::warn("warning: no gradient reaches {}: not trained", names(facts.unreached));
  }
  for (const std::string& warning : step.warnings) spdlog::warn("warning: {}", warning);
}

}  // namespace autopar::cli
