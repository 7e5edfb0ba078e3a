// Pins of a Gemm in its user's terms: the counts of A and B as they are stored, then those of C.
//
//   fc (transB) with C: {"in_strategy": [[2,1],[4,1],[4]]} -> fc [[2,1],[4,1]], fc/add [[2,4],[4]]
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// Import leaves the product of a Gemm under its name and adds C in an op of its own. The pin of the
// product; where that says how the sum lies, `pins` has it for the op that adds, unless it is there
// already. Errors: C is not cut as the result is; they name neither file nor pin.
Result<OpPin> pin_gemm(OpPin pin, const Graph& graph, const GraphRules& rules, OpId product,
                       std::map<std::string, OpPin>& pins);

}  // namespace autopar
