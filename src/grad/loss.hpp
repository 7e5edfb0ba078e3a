// The loss of a step: an output of the model as it is, or one that is added.
#pragma once

#include "autopar/grad.hpp"

namespace autopar {

struct Loss {
  ValueId value;   // rank 0
  ValueId labels;  // an input that was added; invalid: none
  Seed seed;       // where the backward pass begins
  LossCombining combining = LossCombining::kMean;
  // Of one pass among several, where the loss is averaged over what counts: the sum and how many
  // count. The value is then made in the update.
  ValueId sum = {}, count = {};
  double grads_divided_by = 1;  // the gradients of the pass are those of the sum over this
};

// Errors (kUsage): no such output, a form that does not fit it; a name that is taken.
// `scale`: a float32 scalar that all gradients are multiplied by; invalid: 1.
Result<Loss> add_loss(GraphBuilder& to, Graph& graph, const TrainingOptions& options,
                      ValueId scale);
// The value leaves as `loss`.
ValueId add_loss_output(GraphBuilder& to, Graph& graph, ValueId value);

}  // namespace autopar
