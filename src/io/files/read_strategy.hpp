// The parts of strategy.json that stand in it more than once.
#pragma once

#include "autopar/files.hpp"
#include "io/files/json.hpp"

namespace autopar {

// A mesh: a list of axes.
Result<std::vector<StrategyFile::MeshAxis>> mesh_axes_of(const Json& field);
// `ops` and `tensors` of a chunk; null where there is none of that name.
Status read_pins(const Json& owner, StrategyFile::Chunk& said);
// `recompute` and `recompute_from`, whichever is there.
Status read_recompute(const Json& owner, std::string& level,
                      std::vector<StrategyFile::LevelFrom>& from);
// `step`: micro-batches, and the stages of a pipeline.
Status read_step_of(const Json& document, StrategyFile& file);

}  // namespace autopar
