// The loss of a step: an output of the model as it is, or one that is added.
#pragma once

#include "autopar/grad.hpp"

namespace autopar {

struct Loss {
  ValueId value;   // rank 0
  ValueId labels;  // an input that was added; invalid: none
  Seed seed;       // where the backward pass begins
};

// Errors (kUsage): no such output, a form that does not fit it; a name that is taken.
// `scale`: a float32 scalar that all gradients are multiplied by; invalid: 1.
Result<Loss> add_loss(GraphBuilder& to, Graph& graph, const std::string& text, ValueId scale);

}  // namespace autopar
