// Ops that are the same but for their names.
#pragma once

#include <string>

#include "autopar/ops.hpp"

namespace autopar {

// Equal signature => equal candidates, specs and prices: type, rule, attributes, shapes and types
// of all operands, and the contents of the constants that describe the op.
std::string signature(const Graph& graph, const Op& op, const Rule& rule);

}  // namespace autopar
