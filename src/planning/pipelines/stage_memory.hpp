// What the chunks of a stage hold together. One of them runs at a time: then it is at its peak, and
// the others hold what they store and keep for the micro-batches in flight.
//
//   AUTOPAR_TRY(memory, memory_of_chunks(plans, {0, 4}));
//   stage_memory(memory)    // of a stage with these two
#pragma once

#include <map>
#include <vector>

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

struct ChunkBytes {
  Bytes peak = 0;
  Bytes resting = 0;  // at most, while another chunk of the stage runs
};

// Per stage its chunks, in their order.
std::map<std::int64_t, std::vector<std::size_t>> chunks_of_stages(const PipelineSchedule& schedule);

// Of a stage; 0 without chunks.
Bytes stage_memory(const std::vector<ChunkBytes>& chunks);

// What each chunk of a stage may hold with what is held ahead: as much as the others leave that is
// at its peak, and an equal part of what the stage leaves of its room.
std::vector<Bytes> limits_of_chunks(const std::vector<ChunkBytes>& chunks, Bytes room);

// Per device, of these chunks, in their order. What the two parts of a backward pass hand on is in
// no account of what is in flight: `apart`, chunks whose backward pass has two parts are taken to
// be at their peak all the time. Errors: of evaluate().
Result<std::vector<ChunkBytes>> memory_of_chunks(const std::vector<ChunkPlan>& plans,
                                                 const std::vector<std::size_t>& chunks,
                                                 bool apart);

}  // namespace autopar
