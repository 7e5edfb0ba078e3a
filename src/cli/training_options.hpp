// Options of everything that makes a training step.
#pragma once

#include "autopar/grad.hpp"
#include "cli/command.hpp"

namespace autopar::cli {

struct TrainingChoice {
  TrainingOptions options;
  std::string optimizer = "sgd";
  std::string precision = "fp32";
  std::string dropout = "on";
  std::string betas;
  std::vector<std::string> data_inputs;
  std::int64_t batch = 0;
  std::size_t batch_dim = 0;
};
void add_training_options(CLI::App& app, TrainingChoice& choice);
// What was chosen; errors say what was expected.
Result<TrainingOptions> training_options_of(const TrainingChoice& choice);

// "name,other" or several options.
std::vector<std::string> split_list(const std::vector<std::string>& texts);

// The step of a forward model, with what was found told on stderr.
Result<TrainingStep> make_training_step(const std::string& model, const TrainingChoice& choice,
                                        const CommonOptions& common);

// Counts and, with -v, names of what the step's inputs are.
void tell_of_training(const TrainingStep& step);

}  // namespace autopar::cli
