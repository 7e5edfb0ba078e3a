#include "planning/pipelines/even_cuts.hpp"

namespace autopar {

std::vector<std::vector<std::size_t>> even_cuts(std::size_t units, std::size_t stages,
                                                std::size_t rows) {
  const std::size_t chunks = stages * rows;
  std::vector<std::vector<std::size_t>> ways;
  if (units < chunks) return ways;
  const std::size_t over = units % chunks, whole = over / stages, left = over % stages;
  for (std::size_t first = 0; first < (over > 0 ? rows : 1); ++first) {
    std::vector<std::size_t> cuts;
    std::size_t before = 0;
    for (std::size_t c = 0; c + 1 < chunks; ++c) {
      const std::size_t row = (c / stages + rows - first) % rows, place = c % stages;
      const std::size_t skipped = (stages - left + 1) / 2;
      const bool is_left = row == whole && place >= skipped && place < skipped + left;
      before += units / chunks + (row < whole || is_left ? 1 : 0);
      cuts.push_back(before);
    }
    ways.push_back(std::move(cuts));
  }
  return ways;
}

}  // namespace autopar
