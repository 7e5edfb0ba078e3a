// The ranks' own clocks and traces as one timeline.
#pragma once

#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

// The steady clock, in seconds since its own beginning.
Seconds steady_seconds();

// Makes the events of one rank nest: sorted by begin, the outer first, each within the one round it
// or after the one before it. What overlaps by no more than kClockSlack does so since ONNX Runtime
// counts whole microseconds on a clock of its own, and is cut.
inline constexpr Seconds kClockSlack = 5e-6;
void nest(std::vector<RunEvent>& events);

// RunEvent::waiting of all ranks' collectives, from when the last rank of each group came: those of
// one run, step and seq whose group begins with the same rank. The k-th message from one rank to
// another meets the k-th that is received. Precondition: each rank's are in its order.
void find_waiting(std::vector<RunEvent>& events);

}  // namespace autopar
