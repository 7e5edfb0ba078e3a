// The options of everything that makes a training step.
#pragma once

#include "cli/command.hpp"
#include "planning/training_choice.hpp"

namespace autopar::cli {

void add_training_options(CLI::App& app, TrainingChoice& choice);
// Where no step is made, a usage error for those that say how, and for those of its passes.
Status refuse_training_options(const CLI::App& app);
// What is given must be read: usage errors for what another optimizer has, or for the dimension of
// a batch that is neither set nor cut. As in PyTorch, sgd with a momentum is momentum.
Status settle_training_options(const CLI::App& app, TrainingChoice& choice);

// --micro-batches and --copies, of a plan alone.
void add_micro_batches_option(CLI::App& app, TrainingChoice& choice);

}  // namespace autopar::cli
