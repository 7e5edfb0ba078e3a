// Which stages of a search are switched off.
#pragma once

#include "autopar/problem.hpp"

namespace autopar::solver {

using Stages = unsigned;  // of those that are left out, 1 << stage

inline bool runs(Stages left_out, SolveStage stage) {
  return (left_out & (1u << static_cast<unsigned>(stage))) == 0;
}

}  // namespace autopar::solver
