// Which ops of a graph a runtime runs as one kernel.
//
//   graph.kernels = group_kernels(graph, profile);
//   graph.kernels.of_op[op].inside_inputs   // ports that cost no memory traffic
#pragma once

#include <string>

#include "autopar/ir.hpp"
#include "autopar/profile.hpp"

namespace autopar {

// Ops on elements and sums over rows: a kernel of one depth and phase. Depth counts the products
// and other ops of their own on the longest way to an op, so that no kernel waits for itself.
// Attention (Dao, "FlashAttention-2", 2023): the two products around a softmax over scores, with
// all that is done to the scores between; and in the backward pass the products that read scores or
// their gradients, where the first product is done again. Values inside are never stored.
// Under every profile, also the ideal one, Transposes that products see through are views, and what
// writes into an input that it makes the next value of (`updates`: as updated_inputs() has it)
// writes its update alone; not where ops are run one by one. Ideal and none of these: empty.
Kernels group_kernels(const Graph& graph, const Profile& profile, const std::string& updates = "");

}  // namespace autopar
