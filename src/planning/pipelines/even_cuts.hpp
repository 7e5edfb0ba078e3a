// Cuts of a step of units that are alike, so that stages of several chunks get as many units each.
//
//   even_cuts(18, 4, 4)   // 16 chunks: four ways, in each of which two chunks have two units
#pragma once

#include <cstddef>
#include <vector>

namespace autopar {

// Chunks lie in rows, one chunk of each stage in a row. All get as many units; of those that are
// over, whole rows get one more, and what is left goes to chunks in the middle of the next row,
// since the first and the last stage have the ends of the model too. Per row with which this may
// begin, how many units come before each chunk but the first. None where there are fewer units than
// chunks.
std::vector<std::vector<std::size_t>> even_cuts(std::size_t units, std::size_t stages,
                                                std::size_t rows);

}  // namespace autopar
