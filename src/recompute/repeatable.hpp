// What may be made again of a forward pass, and what need not be.
#pragma once

#include <vector>

#include "autopar/recompute.hpp"

namespace autopar {

class Repeatable {
 public:
  explicit Repeatable(const Graph& graph);

  // Needs no activation of the forward pass: inputs, parameters and what only they decide.
  bool is_ready(ValueId id) const { return ready_[id.index()]; }
  // Whether that level repeats the op, where it makes no checkpoint.
  bool may_repeat(const Op& op, Recompute what) const;

 private:
  const Graph& graph_;
  std::vector<bool> ready_, weight_;  // per value; weights: parameters, and what is made of them
};

}  // namespace autopar
