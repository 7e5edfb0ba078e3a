// The memory of a training step at its peak, by what it is there for.
//
//   MemoryParts parts = memory_parts(graph, cost.memory, {{"w", MemoryRole::kParameter}, ...});
//   parts.total() == cost.memory.total
#pragma once

#include <map>
#include <string>

#include "autopar/cost.hpp"

namespace autopar {

// What an input of the step is.
enum class MemoryRole : std::uint8_t { kData, kParameter, kAccumulator, kState };
using MemoryRoles = std::map<std::string, MemoryRole>;  // by name; others are data

struct MemoryParts {
  Bytes data = 0;
  Bytes parameters = 0;    // masters and 16-bit copies
  Bytes accumulators = 0;  // of gradients, over micro-batches
  Bytes states = 0;        // the optimizer's, and running statistics
  Bytes kept = 0;          // activations that the forward pass makes and the backward pass reads
  Bytes temporaries = 0;   // other activations, gradients, reshards
  Bytes constants = 0;

  Bytes total() const;
};
// All copies of a value count as what the value is. O(values + ops).
MemoryParts memory_parts(const Graph& graph, const MemoryPeak& peak, const MemoryRoles& roles);

}  // namespace autopar
