// On which meshes the plan of a double recursion may live.
#pragma once

#include "search/rec/recursion.hpp"

namespace autopar::rec {

// The mesh of all cuts: every tier, outermost first, cut by the prime factors of its size, largest
// first (6 = 3 x 2). Cuts by 2, 3, 5, 7 and so on: any device count.
Mesh finest_mesh(const Cluster& cluster);

// Neighbouring cuts of one tier that treat every op alike are one axis of their product. Where that
// leaves more than `max_axes`, those that differ least are joined first (by the weight of the ops
// that they treat differently), down to one axis per tier. Returns the meshes on that way with at
// most `max_axes` axes (or one per tier, if that is more), finest first; never empty.
// Why a limit: a spec of a tensor of rank r over n axes is one of about (r+1)^n, and reshards are
// shortest paths among them: 10 us at 2 axes, 0.1 ms at 3, 1 ms at 4, 25 ms at 5 (rank 4).
std::vector<Mesh> joined_meshes(const Cluster& cluster, const Mesh& finest,
                                const Decisions& decisions, int max_axes);

}  // namespace autopar::rec
