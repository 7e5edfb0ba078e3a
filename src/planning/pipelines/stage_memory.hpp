// What the chunks of a stage hold together. One of them runs at a time: then it has most, and the
// others have what they store and keep for the micro-batches that are under way.
//
//   AUTOPAR_TRY(memory, memory_of_chunks(plans, {0, 4}, schedule, updates));
//   stage_memory(line, memory)    // of a stage with these two
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "planning/pipelines/chunk_bytes.hpp"
#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// Per stage its chunks, in their order.
std::map<std::int64_t, std::vector<std::size_t>> chunks_of_stages(const PipelineSchedule& schedule);

// The most in the course of a stage's line; `chunks`: all that it names. 0 without chunks.
Bytes stage_memory(const StepLine& line, const std::vector<ChunkBytes>& chunks);

// What each chunk of a stage may hold with what is held ahead: as much as the others leave that has
// most beside what it keeps, and its part of what the stage leaves of its room: all of it for one
// chunk, else half, since two chunks have something ahead at one time: that which runs, whose
// gradients wait, and the next, whose weights are fetched.
std::vector<Bytes> limits_of_chunks(const StepLine& line, const std::vector<ChunkBytes>& chunks,
                                    Bytes room);

// Of these chunks, in their order. Where the schedule has W of a chunk whose backward pass can be
// divided, ops of W come behind the others. A chunk that has its stage alone, and one backward
// pass, is at its peak all the time. Errors: of evaluate().
Result<std::vector<ChunkBytes>> memory_of_chunks(const std::vector<ChunkPlan>& plans,
                                                 const std::vector<std::size_t>& chunks,
                                                 const PipelineSchedule& schedule,
                                                 const std::string& updates);

// Whether the schedule has W of the chunk.
bool is_apart(const PipelineSchedule& schedule, std::size_t chunk);

// Chunks of which that is true have their backward pass as one where its first part stood.
void join_backward(PipelineSchedule& schedule, const std::function<bool(std::size_t)>& is_whole);

}  // namespace autopar
