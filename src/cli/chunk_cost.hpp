// What a chunk of a pipeline takes of its stage's time.
#pragma once

#include "autopar/pipeline.hpp"
#include "cli/forms.hpp"

namespace autopar::cli {

// Seconds of a step's forward ops on one device of the cluster, as its profile prices them, and of
// the backward ops that belong to each. What is of no forward op is of the loss.
struct OpSeconds {
  std::vector<Seconds> forward, backward;  // per op of the step
};
// `step`: with kernels.
Result<OpSeconds> seconds_of_ops(const Inputs& inputs, const Graph& step);

// Of one pass and of the update, without what is sent, as the timeline of the chunk's own step has
// them: a phase of a pass ends where compute begins with the next one. `weight_ops`: of W, per op;
// a backward pass in two parts takes as long as one.
ChunkCost chunk_cost(const Planned& planned, const std::vector<char>& weight_ops);

}  // namespace autopar::cli
