// Sums over all gradients, such as that of a norm, chunk by chunk.
#pragma once

#include "stages/assign.hpp"

namespace autopar::stages {

// A sum of single numbers of the update that goes from chunk to chunk, each adding its own, makes
// every chunk wait for the one before it. In its place each chunk adds up its own numbers, and the
// last one what comes of that: nobody else waits for another. The ops stay the same but for what
// they add and their order; `owned` is of the new graph then. O(values + ops).
void sum_by_chunk(Graph& step, Ownership& owned, const std::vector<OpId>& cuts,
                  const std::string& updates);

}  // namespace autopar::stages
