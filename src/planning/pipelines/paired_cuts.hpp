// Cuts of a step whose stages have two chunks each, laid there and back: stage s has the s-th chunk
// and the s-th from the end.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

// A stage takes at least `apart` and what its two chunks have of it, by their first and last place:
// no less for a chunk that has more.
struct PairedLimit {
  Seconds apart = 0;
  std::function<Seconds(std::size_t chunk, std::size_t from, std::size_t to)> of_chunk;
};

// No more than the longest stage takes, by the limit that says most, however the places from 0 to
// `end` are cut into such chunks, each of at least one; within kPairedStep of the least that it may
// take. `least`: that is no less than this. By halving what is looked for; what can be cut so that
// no stage takes longer is found by dynamic programming from both ends, O(stages x places x places
// of a chunk).
inline constexpr double kPairedStep = 1e-3;
Seconds longest_of_pairs(std::size_t stages, std::size_t end, Seconds least,
                         const std::vector<PairedLimit>& limits);

}  // namespace autopar
