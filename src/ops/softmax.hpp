// Pieces of a softmax over a split dimension, shared with the losses, and of masked ones.
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

// The largest finite number of a floating type.
double largest_of(DType dtype);

// A mask that is added to scores of type `wide`, in that type. The lowest number of 16 bits hides a
// key no less than minus infinity does, though in `wide` there are lower ones.
ValueId widened_mask(GraphBuilder& to, ValueId mask, DType wide);

// 0 where a query sees no key: where the most of its scores is the lowest number. Of `most` and
// `values` dimensions are broadcast.
ValueId where_seen(GraphBuilder& to, ValueId values, ValueId most);

}  // namespace autopar
