// What an op becomes on a rank, to be priced, where that is more than the op itself on local
// shapes.
#pragma once

#include <vector>

#include "autopar/cost.hpp"

namespace autopar {

// The op's operands as values of a program of their own, to see what the op becomes there.
Result<Graph> local_program(const Graph& graph, const Op& op, const Rule& rule,
                            const Assignment& assignment, const OpSpecs& specs, const Mesh& mesh);
// An op of ai.autopar in it, whose axes are not lowered yet.
Collective collective_of(const Op& op);
// Attention in steps: what lies between two exchanges of data is one kernel, in which values that
// only it reads stay.
std::vector<OpKernel> fused_between_exchanges(const Graph& program);
// The most that is alive at once of what ops make and is not inside a kernel, beyond all outputs
// together: each value from its op to its last reader, outputs to the end. `kernels`: per op.
// `gone`: inputs, by their numbers, that need not outlast their last reader; what they leave
// counts. `exp_in_place`: Exp writes where what it reads lay, as measured runtimes have it.
Bytes peak_of_temporaries(const Graph& program, const std::vector<OpKernel>& kernels,
                          const std::vector<ValueId>& gone, bool exp_in_place);

}  // namespace autopar
