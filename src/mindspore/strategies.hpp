// The strategies that MindSpore enumerates for an op, in its order.
#pragma once

#include "autopar/mindspore.hpp"

namespace autopar::mindspore {

// Those that use as many devices as `weights` say; with none, if it is there, last.
std::vector<Assignment> strategies(const Op& op, const Rule& rule, const Mesh& mesh,
                                   const MindsporeWeights& weights);
// Those that it accepts where a user configures the op: on any number of devices and, unless that
// are too many, on any axes of the mesh, where other splits than its own come behind them.
std::vector<Assignment> configurable_strategies(const Op& op, const Rule& rule, const Mesh& mesh,
                                                const MindsporeWeights& weights);
// Whether there are too many on any axes of the mesh.
bool too_many_on_any_axes(const Rule& rule, const Mesh& mesh);

}  // namespace autopar::mindspore
