#include "solve/plans/pool.hpp"

#include <algorithm>

namespace autopar::solver {

void LabelPool::add(const std::vector<int>& labels) {
  for (std::size_t n = 0; n < labels.size(); ++n) {
    if (like_.class_of[n] < 0) continue;
    Labels& met = met_[at(like_.class_of[n])];
    const auto place = std::lower_bound(met.begin(), met.end(), labels[n]);
    if (place == met.end() || *place != labels[n]) met.insert(place, labels[n]);
  }
}

std::vector<Labels> LabelPool::labels() const {
  std::vector<Labels> result(like_.class_of.size());
  for (std::size_t n = 0; n < result.size(); ++n) {
    if (like_.class_of[n] >= 0) result[n] = met_[at(like_.class_of[n])];
  }
  return result;
}

}  // namespace autopar::solver
