// The least memory that any strategy needs.
#pragma once

#include "autopar/strategy.hpp"

namespace autopar {

// What no strategy can get below on so many devices: everything split over all of them, constants
// whole. `time`: when most is needed.
struct LeastMemory {
  Bytes bytes = 0;
  int time = 0;
};
LeastMemory least_memory(const Graph& graph, const std::vector<ValueId>& updated,
                         std::int64_t devices);

// Of a kernel: what it makes takes the place of its first input, of which it writes a part. That is
// an op of its own that neither reads nor writes the whole.
bool writes_in_place(const OpKernel& kernel);

}  // namespace autopar
