// Indices into a split dimension, as a rank sees them.
#pragma once

#include "ops/emitter.hpp"

namespace autopar {

struct OwnIndices {
  ValueId shifted;  // counted from the rank's first one; outside 0..local_extent-1: another rank's
  ValueId mask;     // which ones the rank has
  ValueId clamped;  // shifted where the rank has it, else 0
};
// `axes` split the dimension into parts of `local_extent`.
OwnIndices own_indices(Emitter& emitter, ValueId indices, const std::vector<int>& axes,
                       std::int64_t local_extent);

}  // namespace autopar
