#include "cli/training_options.hpp"

#include <CLI/CLI.hpp>

#include "cli/command_line.hpp"
#include "planning/weights_fit.hpp"

namespace autopar::cli {

void add_training_options(CLI::App& app, TrainingChoice& choice) {
  TrainingOptions& options = choice.options;
  app.option_defaults()->group(group::kReading);
  app.add_option("--data-inputs", choice.data_inputs,
                 "which inputs are data, where the file does not say; the others are parameters")
      ->type_name("NAME,...");
  app.add_option("--batch", choice.batch,
                 "samples of a step: the size of the data inputs' batch dimension, symbolic or not")
      ->check(whole_number(1))
      ->type_name("NUMBER");
  app.add_option("--batch-dim", choice.batch_dim, "which dimension is the batch (default 0)")
      ->check(whole_number(0))
      ->type_name("NUMBER");
  app.option_defaults()->group(group::kTraining);
  app.add_option(kWeightsFrom, choice.weights_from,
                 "weights and states that must fit the step: .npz, .safetensors or .onnx\n"
                 "They are not written into the step; `run --weights-from` feeds them to it.")
      ->type_name("FILE");
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
      ->check(number_from_zero())
      ->type_name("NUMBER");
  app.add_option("--betas", choice.betas, "of adam and adamw (default 0.9,0.999)")
      ->type_name("B1,B2");
  app.add_option("--eps", options.epsilon, "of adam and adamw (default 1e-8)")
      ->check(positive_number())
      ->type_name("NUMBER");
  app.add_option("--weight-decay", options.weight_decay,
                 "default 0.01 of adamw, else 0; added to the gradient but for adamw")
      ->check(number_from_zero())
      ->type_name("NUMBER");
  app.add_option("--momentum", options.momentum,
                 "of momentum (default 0.9); sgd with it is momentum")
      ->check(number_between(0, 1))
      ->type_name("NUMBER");
  app.add_option("--clip-norm", options.clip_norm,
                 "scale all gradients where their common norm is above this")
      ->check(positive_number())
      ->type_name("NUMBER");
  app.add_option(
         "--precision", choice.precision,
         "fp32: the model's own types (default); bf16, fp16: weights and passes in 16 bits; "
         "mixed-bf16, mixed-fp16: masters in float32, passes on 16-bit copies\n"
         "Updates and optimizer states are float32 in any case. fp16 scales the loss and "
         "leaves out steps with gradients that are not finite.")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "mixed-bf16", "mixed-fp16"}));
  app.add_option(
         "--reduce-precision", choice.reduce_precision,
         "what gradients are in when devices add them up: auto (default), fp32, bf16, fp16\n"
         "`auto`: before or after a 16-bit gradient becomes float32, as it costs less; "
         "`fp32`: after; `bf16`, `fp16`: in 16 bits, gradients that are not are rounded.")
      ->check(CLI::IsMember({"auto", "fp32", "bf16", "fp16"}));
  app.add_option("--dropout", choice.dropout,
                 "on: as the model has it, with one mask for both passes (default); off: removed")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--gradients", choice.gradients,
                 "mean: of the loss as it is told (default); sum: not divided by what a loss that "
                 "is added is averaged over, nor by the number of micro-batches")
      ->check(CLI::IsMember({"mean", "sum"}));
}

Status refuse_training_options(const CLI::App& app) {
  return refuse_options(
      app,
      {"--loss", "--optimizer", "--parameters", "--freeze", "--lr", "--betas", "--eps",
       "--weight-decay", "--momentum", "--clip-norm", "--precision", "--reduce-precision",
       "--dropout", "--copies", "--gradients", kWeightsFrom},
      "needs --train: without it the model is taken as it is");
}

Status settle_training_options(const CLI::App& app, TrainingChoice& choice) {
  if (choice.batch == 0 && choice.micro_batches == "1") {
    AUTOPAR_RETURN_IF_ERROR(
        refuse_options(app, {"--batch-dim"}, "goes with --batch or --micro-batches"));
  }
  const bool has_momentum = app["--momentum"]->count() > 0;
  if (choice.optimizer == "sgd" && has_momentum) choice.optimizer = "momentum";
  const std::string& optimizer = choice.optimizer;
  const std::string instead = ", not with " + optimizer;
  if (optimizer != "momentum") {
    AUTOPAR_RETURN_IF_ERROR(
        refuse_options(app, {"--momentum"}, "goes with --optimizer momentum" + instead));
  }
  if (optimizer == "adam" || optimizer == "adamw") return Ok{};
  if (optimizer == "none") {
    AUTOPAR_RETURN_IF_ERROR(
        refuse_options(app, {"--lr", "--weight-decay", "--clip-norm"},
                       "goes with an update; by --optimizer none the gradients leave as they are"));
  }
  return refuse_options(app, {"--betas", "--eps"}, "goes with --optimizer adam or adamw" + instead);
}

void add_micro_batches_option(CLI::App& app, TrainingChoice& choice) {
  app.option_defaults()->group(group::kTraining);
  app.add_option("--micro-batches", choice.micro_batches,
                 "passes of a step, each on so many parts of the batch: a number (default 1), or "
                 "auto\n"
                 "Gradients are summed over the passes, and the update is one; without --train "
                 "outputs are put together. `auto` tries "
                 "numbers that divide the batch, as long as one may be more than 0.5 % faster.")
      ->type_name("NUMBER");
  app.add_option("--copies", choice.copies,
                 "passes that run interleaved, so that collectives of one go beside the compute of "
                 "another (default 1)\n"
                 "A divisor of --micro-batches. Each copy has its own activations in memory; ideal "
                 "prices, without --profile, know of nothing that goes on side by side.")
      ->type_name("NUMBER");
}

}  // namespace autopar::cli
