// Labellings met on the way, to be combined.
#pragma once

#include <vector>

namespace autopar::solver {

// The latest ones; labels of a network's remaining nodes. Those that fit are kept apart, so that
// there is always one to mix with.
struct Pool {
  std::vector<std::vector<int>> met, fitting;

  void add(const std::vector<int>& labels);
  void add_fitting(const std::vector<int>& labels);
};

// Puts the labels last, where they were known too. Of more than so many, the first goes.
void add_latest(std::vector<std::vector<int>>& list, const std::vector<int>& labels,
                std::size_t most);

}  // namespace autopar::solver
