// The options of everything that makes a training step.
#pragma once

#include "cli/command.hpp"
#include "planning/training_choice.hpp"

namespace autopar::cli {

void add_training_options(CLI::App& app, TrainingChoice& choice);

// --micro-batches and --copies, of a plan alone.
void add_micro_batches_option(CLI::App& app, TrainingChoice& choice);

}  // namespace autopar::cli
