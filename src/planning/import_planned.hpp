// The graph that is planned.
#pragma once

#include "planning/inputs.hpp"

namespace autopar {

// The model, or the training step that is made of it; of a step, `inputs` gets what is known of its
// batch, its loss and how its passes are combined. Errors: those of import_model() and
// make_training_step().
Result<ImportedModel> import_planned(const PlanOptions& options, const CommonOptions& common,
                                     Inputs& inputs);

}  // namespace autopar
