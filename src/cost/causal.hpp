// Whether a mask of attention scores leaves out what comes later.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// Elements of values that follow from constants alone, by row and column of their last two
// dimensions (in the first of the others), without making them.
class Elements {
 public:
  explicit Elements(const Graph& graph) : graph_(graph) {}
  std::optional<double> at(ValueId id, std::int64_t row, std::int64_t column);

 private:
  using Data = std::optional<std::vector<double>>;
  std::optional<double> of_op(const Op& op, std::int64_t row, std::int64_t column);
  const Data& data(ValueId id);

  const Graph& graph_;
  std::map<ValueId, Data> data_;  // of constants
};

// Whether `op` (Where or Add) puts a mask on `scores`, one of its inputs, that leaves each row only
// the columns up to its own; looked at in a few places.
bool is_causal_mask(const Graph& graph, const Op& op, ValueId scores, Elements& elements);

}  // namespace autopar
