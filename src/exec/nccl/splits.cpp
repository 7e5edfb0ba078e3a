#include "exec/nccl/splits.hpp"

#include <algorithm>
#include <set>

#include "autopar/ir.hpp"

namespace autopar {

namespace {

Status verify(const std::vector<std::int64_t>& group, int size) {
  std::set<std::int64_t> seen;
  for (std::int64_t rank : group) {
    if (rank < 0 || rank >= size) {
      return input_error("group " + to_text(group) + " names rank " + std::to_string(rank) +
                         ", which is none of the " + std::to_string(size) + " ranks");
    }
    if (!seen.insert(rank).second) {
      return input_error("group " + to_text(group) + " names rank " + std::to_string(rank) +
                         " twice");
    }
  }
  return Ok{};
}

bool has_any(const std::vector<bool>& taken, const std::vector<std::int64_t>& group) {
  return std::any_of(group.begin(), group.end(),
                     [&](std::int64_t rank) { return taken[static_cast<std::size_t>(rank)]; });
}

}  // namespace

int CommSplit::color_of(std::int64_t rank) const {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (std::find(groups[g].begin(), groups[g].end(), rank) != groups[g].end()) {
      return static_cast<int>(g);
    }
  }
  return -1;
}

int CommSplit::key_of(std::int64_t rank) const {
  const int color = color_of(rank);
  if (color < 0) return 0;
  const auto& group = groups[static_cast<std::size_t>(color)];
  return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
}

bool is_world(const std::vector<std::int64_t>& group, int size) {
  if (static_cast<int>(group.size()) != size) return false;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

Result<std::vector<CommSplit>> plan_splits(const std::vector<std::vector<std::int64_t>>& groups,
                                           int size, bool has_world) {
  std::vector<CommSplit> splits;
  std::vector<std::vector<bool>> taken;  // by split and rank
  std::set<std::vector<std::int64_t>> known;
  for (const auto& group : groups) {
    AUTOPAR_RETURN_IF_ERROR(verify(group, size));
    if (group.size() < 2 || (has_world && is_world(group, size))) continue;
    if (!known.insert(group).second) continue;
    std::size_t s = 0;
    while (s < splits.size() && has_any(taken[s], group)) ++s;
    if (s == splits.size()) {
      splits.emplace_back();
      taken.emplace_back(static_cast<std::size_t>(size), false);
    }
    splits[s].groups.push_back(group);
    for (std::int64_t rank : group) taken[s][static_cast<std::size_t>(rank)] = true;
  }
  return splits;
}

}  // namespace autopar
