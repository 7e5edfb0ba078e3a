// Cuts that suit a schedule: what balances chunks does not balance stages that have several, nor
// says what a stage waits for.
#pragma once

#include "autopar/pipeline.hpp"
#include "autopar/stages.hpp"

namespace autopar {

// What chunks of these cuts take by what their ops do on one device of `devices` that share them
// evenly, with what each takes beside its ops.
std::vector<ChunkCost> costs_by_ops(const OpSeconds& seconds, const ChunkSeconds& beside,
                                    const std::vector<OpId>& cuts, double devices);

// The best of some cuts to start with, moved one by one to places nearby as long as the schedule is
// shorter by these costs. `places`: in order, the cuts among them. `sending`: per op for how long a
// link has what crosses before it, in both directions, by one device of `devices` that share it;
// empty: no time. Errors: of the schedule.
Result<std::vector<OpId>> moved_cuts(const PipelineSchedule& schedule,
                                     const std::vector<OpId>& places,
                                     std::vector<std::vector<OpId>> starts,
                                     const OpSeconds& seconds, const ChunkSeconds& beside,
                                     const std::vector<Seconds>& sending, double devices);

}  // namespace autopar
