// What one rank of a run has to say, and the report that all of them make.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "exec/collective_ops.hpp"
#include "exec/profile.hpp"
#include "exec/verdict.hpp"

namespace autopar {

struct RankRecord {
  std::vector<RankDifference> differences;  // by output of the rank's program
  std::map<std::string, TimedKind> times;   // by kind, of this rank
  std::string out_of_order;                 // as CollectiveTimes
  Seconds wall = 0;
};

// Of the collectives by the ops themselves, so that waiting is seen; of local ops by the trace.
std::map<std::string, TimedKind> times_of(const CollectiveTimes& collectives,
                                          const std::map<std::string, KernelTimes>& local);

// Without the differences, between processes.
std::string to_bytes(const RankRecord& record);
RankRecord record_of(const std::string& bytes);

// Outputs, times, wall time, warnings and the verdict, from the ranks' records by rank.
void report_ranks(const RunRequest& request, const std::vector<RankRecord>& records,
                  RunReport& report);

}  // namespace autopar
