// Which states are worth keeping: those that leave more room than all that cost no more.
#pragma once

#include <utility>
#include <vector>

#include "autopar/problem.hpp"
#include "solve/network/network.hpp"

namespace autopar::solver {

// The rooms of the states that are kept, which come by rising cost.
class Front {
 public:
  explicit Front(std::size_t width) : width_(width) {}

  // False if one of those before has as much room everywhere.
  bool add(const double* room) {
    if (width_ == 1) return add_to_line(room[0]);
    if (width_ == 2) return add_to_stairs(room[0], room[1]);
    for (std::size_t k = all_.size(); k > 0; k -= width_) {
      ++work_;
      const double* other = all_.data() + k - width_;
      bool less = false;
      for (std::size_t v = 0; v < width_ && !less; ++v) less = other[v] < room[v];
      if (!less) return false;
    }
    all_.insert(all_.end(), room, room + width_);
    return true;
  }

  double work() const { return work_; }

 private:
  bool add_to_line(double room) {
    if (most_ >= room) return false;
    most_ = room;
    return true;
  }

  // Steps: the more room of the first kind, the less of the second.
  bool add_to_stairs(double first, double second) {
    const auto above = std::lower_bound(
        stairs_.begin(), stairs_.end(), first,
        [](const std::pair<double, double>& step, double room) { return step.first < room; });
    if (above != stairs_.end() && above->second >= second) return false;
    auto end = above;
    if (end != stairs_.end() && end->first == first) ++end;
    auto begin = above;
    while (begin != stairs_.begin() && std::prev(begin)->second <= second) --begin;
    work_ += 0.1 * static_cast<double>(stairs_.end() - begin);
    if (begin == end) {
      stairs_.insert(begin, {first, second});
    } else {
      *begin = {first, second};
      stairs_.erase(begin + 1, end);
    }
    return true;
  }

  std::size_t width_;
  Vector all_;
  double most_ = -kInfinity;
  std::vector<std::pair<double, double>> stairs_;
  double work_ = 0;
};

}  // namespace autopar::solver
