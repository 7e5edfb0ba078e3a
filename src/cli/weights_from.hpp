// --weights-from: weights and optimizer states that somebody gives, for a training step.
#pragma once

#include <string>
#include <vector>

#include "autopar/exec.hpp"
#include "autopar/export.hpp"
#include "autopar/given_weights.hpp"
#include "planning/weights_fit.hpp"

namespace autopar::cli {

// What the inputs of the programs are, as their files say; of files that do not say it, what has a
// next value is a parameter.
Result<TrainingRoles> roles_of(const std::vector<PlanFile>& files, const std::string& updates);

// `run`: feeds what the file has. Every rank reads it; `tells`: this one says what is missing.
// Errors: it is not for this step.
Status add_weights_from(const std::string& path, const std::vector<PlanFile>& files, bool tells,
                        RunRequest& request);

// Whether weights of a step that is not trained, which its programs read as inputs, have no values
// in its folder, as the model had none: `run` makes some up.
bool are_made_up(const PlanFile& program, const std::string& folder);

// The same of what the step in `folder` does not train and its programs read as inputs: as the
// files of its ranks have it, whatever else is given, since the unsharded step has it, too.
Status feed_not_trained(const std::string& folder, const std::vector<PlanFile>& files, bool tells,
                        RunRequest& request);

}  // namespace autopar::cli
