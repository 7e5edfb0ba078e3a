// Which splits of the world make the communicators of all groups.
#pragma once

#include <cstdint>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

// One ncclCommSplit, by rank: ranks of the same color become one communicator, ordered by key.
struct CommSplit {
  std::vector<std::vector<std::int64_t>> groups;  // disjoint; the index of a group is its color
  // Color of a rank, or -1; its key is its place in the group.
  int color_of(std::int64_t rank) const;
  int key_of(std::int64_t rank) const;
};

// Disjoint groups share a split: each goes to the first in which none of its ranks has a group yet,
// so that all groups of a partition are made by one. Left out are groups of one rank, groups that
// are there already and, where `has_world`, that of all ranks in their order, which is the world.
// The order and the number of splits depend on nothing but that. Errors (kInput): a group that
// names a rank twice or one outside of the world. O(ranks in groups * splits).
Result<std::vector<CommSplit>> plan_splits(const std::vector<std::vector<std::int64_t>>& groups,
                                           int size, bool has_world = true);

// Whether it is the group of all ranks in their order.
bool is_world(const std::vector<std::int64_t>& group, int size);

}  // namespace autopar
