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

}  // namespace autopar
