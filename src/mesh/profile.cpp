#include "autopar/profile.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace autopar {
namespace {

Error wrong(const std::string& field, const std::string& expected, double found) {
  return input_error(field + " must be " + expected + ", found " + std::to_string(found));
}

}  // namespace

Bytes Profile::upper_memory(Bytes bytes) const {
  if (reserved_bytes == 0 && fragmentation == 0) return bytes;
  const double upper = static_cast<double>(bytes) * (1 + fragmentation);
  return reserved_bytes + static_cast<Bytes>(std::ceil(upper));
}

Bytes Profile::room_in(Bytes memory) const {
  const Bytes left = std::max<Bytes>(0, memory - reserved_bytes);
  return static_cast<Bytes>(std::floor(static_cast<double>(left) / (1 + fragmentation)));
}

Seconds Profile::waited_host_s(std::int64_t ranks) const {
  if (!of_stage) return 0;
  return stage_collective_s + stage_collective_rank_s * static_cast<double>(ranks);
}

Status verify(const Profile& profile) {
  const std::pair<const char*, double> fractions[] = {
      {"matrix.fraction", profile.matrix.fraction},
      {"matrix.unaligned", profile.matrix.unaligned},
      {"attention.forward", profile.attention.forward},
      {"attention.backward", profile.attention.backward},
      {"memory.fraction", profile.memory.fraction}};
  for (const auto& [field, value] : fractions) {
    if (!(value > 0 && value <= 1)) return wrong(field, "above 0 and up to 1", value);
  }
  for (const auto& [field, value] :
       {std::pair{"memory.normalisation", profile.memory.normalisation},
        std::pair{"memory.gather", profile.memory.gather}}) {
    if (!(value >= 0 && value <= 1)) return wrong(field, "from 0 to 1", value);
  }
  const std::pair<const char*, double> others[] = {
      {"launch_s", profile.launch_s},
      {"host_s", profile.host_s},
      {"stage_collective.each_s", profile.stage_collective_s},
      {"stage_collective.rank_s", profile.stage_collective_rank_s},
      {"matrix.half_k", profile.matrix.half_k},
      {"matrix.tile", std::min(profile.matrix.tile_m, profile.matrix.tile_n)},
      {"matrix.multiprocessors", profile.matrix.multiprocessors},
      {"matrix.least_k", profile.matrix.least_k},
      {"bucket_bytes", profile.bucket_bytes},
      {"slowdown", profile.slowdown},
      {"pipelined", profile.pipelined},
      {"gradient_bytes", profile.gradient_bytes},
      {"pass_gradient_bytes", profile.pass_gradient_bytes},
      {"attention.half_length", profile.attention.half_length},
      {"attention.half_heads", profile.attention.half_heads},
      {"memory.half_bytes", profile.memory.half_bytes},
      {"reserved_bytes", static_cast<double>(profile.reserved_bytes)},
      {"fragmentation", profile.fragmentation}};
  for (const auto& [field, value] : others) {
    if (!(value >= 0 && value < 1e300)) return wrong(field, "at least 0", value);
  }
  for (const auto& [field, value] :
       {std::pair{"gradient_bytes", profile.gradient_bytes},
        std::pair{"pass_gradient_bytes", profile.pass_gradient_bytes}}) {
    if (value > 64) return wrong(field, "at most 64", value);
  }
  if (profile.runs_op_by_op &&
      (profile.fuses_elementwise || profile.fuses_normalisation || profile.fuses_attention ||
       profile.fuses_optimizer || profile.has_strides || profile.repeats_whole_segments)) {
    return input_error(
        "op_by_op goes with no fuses, strided_operands or whole_segments: where every op is run by "
        "itself, no kernel is made of several");
  }
  if (profile.pipelined > 1) return wrong("pipelined", "at most 1", profile.pipelined);
  if (profile.matrix.tile_m > 0 && !(profile.matrix.multiprocessors >= 1)) {
    return wrong("matrix.multiprocessors", "at least 1 where tiles are given",
                 profile.matrix.multiprocessors);
  }
  return Ok{};
}

}  // namespace autopar
