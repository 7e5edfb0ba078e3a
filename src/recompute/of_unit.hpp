// Recomputation in a part of a step that is planned by itself, and stands for one of many.
#pragma once

#include "autopar/recompute.hpp"

namespace autopar {

// As recompute(), with the turn at the end of the forward pass: there a chunk of many such parts
// holds most, whatever one of them holds most at. With kFull it is one segment, as the checkpoints
// of such a chunk lie between its parts.
Recomputed recompute_unit(const Graph& graph, Recompute what);

}  // namespace autopar
