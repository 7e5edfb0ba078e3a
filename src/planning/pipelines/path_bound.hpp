// What a schedule takes at least, whatever its chunks are cut to: by paths through its actions.
//
// Along a path each action waits for the one before it, so the schedule takes at least what those
// on it take, which is a sum over chunks; and so does any mean of several paths. The cuts with the
// least of such a sum are found by dynamic programming. Which paths say most is a game: with cuts
// as they are best against the paths so far, the schedule is simulated, and its longest path is the
// next one (Kelley, "The cutting-plane method for solving convex programs", 1960); the weights of
// the paths are those of a matrix game, paths against cuts, by a linear programme.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "autopar/pipeline.hpp"

namespace autopar {

// Of what lies between two places, on the devices of a stage, of one micro-batch at least.
struct LeastOfPart {
  Seconds forward = 0, backward = 0;
  Seconds inputs = 0;  // the first part of the backward pass
  Seconds pass = 0;    // forward and backward together, no less than their sum
};
using LeastOfParts = std::function<LeastOfPart(std::size_t from, std::size_t to)>;

// Places are numbers from 0 to `end`; each chunk has one at least. `ends`: where chunks end, 0:
// anywhere. `least`: what is known already. 0 where there are no such cuts. O(rounds x chunks x
// places^2). Errors: of the schedule.
Result<Seconds> bound_by_paths(const PipelineSchedule& schedule, const LeastOfParts& part,
                               std::size_t end, const std::vector<std::size_t>& ends);

}  // namespace autopar
