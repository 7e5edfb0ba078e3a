// Options of everything that makes a training step.
#pragma once

#include "autopar/grad.hpp"
#include "cli/command.hpp"

namespace autopar::cli {

struct TrainingChoice {
  TrainingOptions options;
  std::string optimizer = "sgd";
  std::string dropout = "on";
  std::string betas;
};
void add_training_options(CLI::App& app, TrainingChoice& choice);
// What was chosen; errors say what was expected.
Result<TrainingOptions> training_options_of(const TrainingChoice& choice);

// "name,other" or several options.
std::vector<std::string> split_list(const std::vector<std::string>& texts);

// Counts and, with -v, names of what the step's inputs are.
void tell_of_training(const TrainingStep& step);

}  // namespace autopar::cli
