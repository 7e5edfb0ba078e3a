// Sorting what comes in sorted runs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace autopar::solver {

// Runs begin at `begins`, the last one ends with the items. Neighbours are merged until one is
// left; equal items keep their order. O(items x log of the runs).
template <class Item, class Before>
void merge_runs(std::vector<Item>& items, std::vector<std::size_t>& begins,
                std::vector<Item>& buffer, Before before) {
  const auto place = [](std::vector<Item>& list, std::size_t i) {
    return list.begin() + static_cast<std::ptrdiff_t>(i);
  };
  while (begins.size() > 1) {
    buffer.resize(items.size());
    std::size_t runs = 0;
    for (std::size_t r = 0; r < begins.size(); r += 2) {
      const std::size_t begin = begins[r];
      const std::size_t middle = r + 1 < begins.size() ? begins[r + 1] : items.size();
      const std::size_t end = r + 2 < begins.size() ? begins[r + 2] : items.size();
      std::merge(place(items, begin), place(items, middle), place(items, middle), place(items, end),
                 place(buffer, begin), before);
      begins[runs++] = begin;
    }
    begins.resize(runs);
    items.swap(buffer);
  }
}

}  // namespace autopar::solver
