// Which chunk each op of a step belongs to.
#pragma once

#include <string>
#include <vector>

#include "autopar/strategy.hpp"

namespace autopar::stages {

inline constexpr int kShared = -1;  // of every chunk that reads it

struct Ownership {
  std::vector<int> chunk_of_op;
  std::vector<ValueId> next;  // of an input: its next value; invalid: none
};

// What a chunk may do for itself: ops that depend on data and constants alone.
std::vector<char> made_of_data(const Graph& step, const std::vector<ValueId>& next);
std::vector<ValueId> next_values(const Graph& step, const std::string& updates);

Ownership assign_ops(const Graph& step, const std::vector<OpId>& cuts, const std::string& updates);

}  // namespace autopar::stages
