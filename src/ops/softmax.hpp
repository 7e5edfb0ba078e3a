// Pieces of a softmax over a split dimension, shared with the losses.
#pragma once

#include "ops/emitter.hpp"

namespace autopar {

// Over dimension `axis`, which the mesh axes `axes` split. In 32 bits where the input has 16.
struct SoftmaxParts {
  ValueId max;      // global, extent 1 in `axis`
  ValueId shifted;  // x - max
  ValueId powers;   // exp(x - max)
  ValueId sum;      // global, of the powers
};
SoftmaxParts softmax_parts(Emitter& emitter, ValueId from, std::size_t axis,
                           const std::vector<int>& axes);

}  // namespace autopar
