// Plans that redistribute little on large graphs: only ops near the pins follow them.
#pragma once

#include "search/propagate/propagate.hpp"

namespace autopar {

// Where nothing is split nothing is redistributed, so the least redistribution is often reached by
// following a pin only as far as that makes a tensor smaller, and being whole from there on. Here
// every seed has a reach: ops that follow it and are decided no later than at that level do as they
// did breadth first, the others are whole (where they may). One reach for all seeds first, then
// each seed its own: 0, 1, 2, 3, 4, 6, 8, 12, ... Values as cheap as can be, by `problem`, in which
// redistribution is what counts. Time: (seeds + 1) * log(levels) solves with all ops fixed, at most
// 64.
Solution solve_near_pins(const MeshProblem& mesh_problem, const Problem& problem,
                         const PropagationTrace& trace, const SolveOptions& options);

}  // namespace autopar
