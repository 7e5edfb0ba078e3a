// Chunks take what others hand them in any layout, as if that cost nothing: a gradient that is read
// whole comes whole over the link between the stages, and is not gathered over the faster ones
// within. Here the plan is tried with such values read as they were made, and put together in the
// chunk (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", SC 2021, section 4.1: scatter/gather).
#pragma once

#include "planning/pipelines/chunk_plans.hpp"

namespace autopar {

// The faster one. Values whose layout is pinned stay. Errors: of pricing.
Result<PipelinePlan> read_as_made(const ChunkPlans& plans, const Cluster& cluster,
                                  const std::string& updates, Bytes room, PipelinePlan plan);

}  // namespace autopar
