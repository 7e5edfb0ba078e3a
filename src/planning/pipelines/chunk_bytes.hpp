// What a chunk of a pipeline holds, by the actions of its schedule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "autopar/support.hpp"

namespace autopar {

// Per device. The rest of what a chunk has while an action of it runs is made for that alone.
struct ChunkBytes {
  std::int64_t chunk = 0;
  Bytes stored = 0;   // all the time
  Bytes kept = 0;     // of a micro-batch, from its F to the end of B or I
  Bytes waiting = 0;  // and from there to the end of W
  Bytes forward = 0, backward = 0, weights = 0, update = 0;  // beside that in F; B or I; W; R or U
  std::int64_t in_flight = 1;                                // micro-batches, at most

  // While another chunk of the stage runs, where the backward pass is one.
  Bytes resting() const { return stored + in_flight * kept; }
  Bytes beside() const { return std::max(forward, backward); }
};

// Of a plan, with its backward pass as a whole and with that in two parts; nothing: not asked for.
struct KnownChunkBytes {
  std::optional<ChunkBytes> whole, divided;
};

}  // namespace autopar
