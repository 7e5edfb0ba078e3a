// What goes from one stage of a pipeline to another, or from a chunk to another of its stage.
#pragma once

#include <string>

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// How a value lies on the devices of a stage.
struct Placed {
  const Spec& spec;
  const Mesh& mesh;
};

// Bytes that the rank which gets most of a value gets of it from other ranks, to have it as it is
// read. On the ranks that made it each has its own slice. O(1), or of the same ranks O(ranks).
double bytes_to_read(const Value& value, const Placed& made, const Placed& read, bool same_ranks);

// A rank of stage `from` sends so many bytes to one of stage `to`; stages are numbered, and each is
// as large as `stage`. Within a stage it is over its outermost tier. No bytes take no time.
Seconds message_seconds(const Cluster& cluster, const Cluster& stage, std::int64_t from,
                        std::int64_t to, double bytes);

// What a chunk hands another one, as both have it.
struct HandedValue {
  ValueId made, read;
  const Value& value;
  Placed by_maker, by_reader;
};
HandedValue handed_value(const ChunkPlan& maker, const ChunkPlan& reader, const std::string& name);

}  // namespace autopar
