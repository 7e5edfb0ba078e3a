// Where the forward pass is cut into segments that are repeated one after the other, each from what
// is kept at its beginning (Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory
// Cost", 2016).
#pragma once

#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// `across[t]`: bytes that the forward pass itself hands on from op t and those before to later
// ones. `made[t]`: bytes that op t makes for the backward pass, were all of it kept. Returns the
// ops, in order, after which what is handed on is kept: such that this, and what the largest
// segment makes, are together the least; empty where cutting saves nothing.
std::vector<std::size_t> checkpoints(const std::vector<Bytes>& across,
                                     const std::vector<Bytes>& made);

}  // namespace autopar
