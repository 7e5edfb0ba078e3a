#include "planning/pipelines/stage_memory.hpp"

#include <algorithm>

#include "autopar/cost_models.hpp"

namespace autopar {

namespace {

// Activations that are kept for each micro-batch in flight.
Result<Bytes> kept_by(const ChunkPlan& chunk) {
  const SearchRequest& request = *chunk.planned->request;
  const SearchOutcome& outcome = chunk.planned->outcome;
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, outcome.strategy.mesh));
  Graph more = request.graph;
  more.in_flight += 1;
  AUTOPAR_TRY(cost, evaluate(more, request.rules, outcome.strategy, *model, request.updates));
  return cost.memory.activations - outcome.cost.memory.activations;
}

}  // namespace

std::map<std::int64_t, std::vector<std::size_t>> chunks_of_stages(
    const PipelineSchedule& schedule) {
  std::map<std::int64_t, std::vector<std::size_t>> of_stage;
  for (std::size_t c = 0; c < schedule.stage_of_chunk.size(); ++c) {
    of_stage[schedule.stage_of_chunk[c]].push_back(c);
  }
  return of_stage;
}

Bytes stage_memory(const std::vector<ChunkBytes>& chunks) {
  Bytes resting = 0, more = 0;
  for (const ChunkBytes& chunk : chunks) {
    resting += chunk.resting;
    more = std::max(more, chunk.peak - chunk.resting);
  }
  return resting + more;
}

std::vector<Bytes> limits_of_chunks(const std::vector<ChunkBytes>& chunks, Bytes room) {
  Bytes more = 0;
  for (const ChunkBytes& chunk : chunks) more = std::max(more, chunk.peak - chunk.resting);
  const Bytes left =
      std::max<Bytes>(0, room - stage_memory(chunks)) / static_cast<Bytes>(chunks.size());
  std::vector<Bytes> limits;
  for (const ChunkBytes& chunk : chunks) limits.push_back(chunk.resting + more + left);
  return limits;
}

Result<std::vector<ChunkBytes>> memory_of_chunks(const std::vector<ChunkPlan>& plans,
                                                 const std::vector<std::size_t>& chunks,
                                                 bool apart) {
  std::vector<ChunkBytes> found;
  for (const std::size_t c : chunks) {
    const ChunkPlan& chunk = plans[c];
    const MemoryPeak& memory = chunk.planned->outcome.cost.memory;
    if (apart || chunks.size() == 1) {
      found.push_back({memory.total, memory.total});
      continue;
    }
    if (!*chunk.kept) {
      AUTOPAR_TRY(kept, kept_by(chunk));
      *chunk.kept = kept;
    }
    // Inputs in flight are among the parameters.
    const Bytes resting = memory.parameters + memory.constants + chunk.in_flight * **chunk.kept;
    found.push_back({memory.total, std::min(memory.total, resting)});
  }
  return found;
}

}  // namespace autopar
