// On which meshes the plan of a double recursion may live.
#pragma once

#include "search/rec/recursion.hpp"

namespace autopar::rec {

// The mesh of all cuts: every tier, outermost first, cut by the prime factors of its size, largest
// first (6 = 3 x 2). Cuts by 2, 3, 5, 7 and so on: any device count.
Mesh finest_mesh(const Cluster& cluster);

// The meshes that the cuts lead to. Neighbouring cuts of one tier that treat (nearly) every op
// alike are one axis of their product; from there on, tier by tier, those that differ least are
// joined (by the weight of the ops that they treat differently), down to one axis per tier.
// Why a limit on the axes: a spec of a tensor of rank r over n axes is one of about (r+1)^n, and
// reshards are shortest paths among them: 10 us at 2 axes, 0.1 ms at 3, 1 ms at 4, 25 ms at 5
// (rank 4).
class JoinedMeshes {
 public:
  JoinedMeshes(const Cluster& cluster, const Mesh& finest, const Decisions& decisions);

  // Per tier, outermost first, how many times its cuts were joined.
  using Joins = std::vector<std::size_t>;
  // All that lead to at most `max_axes` axes (or to one per tier, if that is more), meshes of more
  // axes first; never empty.
  std::vector<Joins> all(int max_axes) const;
  Mesh mesh(const Joins& joins) const;

 private:
  const Cluster& cluster_;
  std::vector<std::vector<std::vector<std::int64_t>>> sizes_;  // of axes, per tier and join
};

}  // namespace autopar::rec
