// What one rank of a run has to say, and the report that all of them make.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "exec/collective_ops.hpp"
#include "exec/profile.hpp"
#include "exec/verdict.hpp"
#include "exec/wiring.hpp"

namespace autopar {

// One run of one rank, all its steps.
struct RankRun {
  Seconds begin = 0;  // by steady_seconds()
  Seconds wall = 0;
  std::map<std::string, TimedKind> times;  // by kind
  Seconds local = 0;                       // as RankTimes
  Seconds collectives = 0;                 // as RankTimes
};

struct RankRecord {
  std::vector<RankDifference> differences;  // by result of the rank
  std::vector<RankRun> runs;                // the first one first
  std::vector<RunEvent> events;             // if asked for; begin by steady_seconds()
  std::string out_of_order;                 // as CollectiveTimes
  std::string changed;     // which output was not the same in two runs; empty: none
  std::string incomplete;  // why times or events are missing
};

// The trace of one of the rank's programs.
struct ProgramTrace {
  Trace trace;
  Seconds begin = 0;  // by steady_seconds()
  int calls_per_step = 1;
};
// Completes the record's runs, which have begin and wall: of the collectives by the ops themselves,
// so that waiting is seen; of local ops by the traces.
void add_times(const RunRequest& request, int rank, const CollectiveTimes& collectives,
               const std::vector<ProgramTrace>& traces, RankRecord& record);

// Without the differences, between processes.
std::string to_bytes(const RankRecord& record);
Result<RankRecord> record_of(const std::string& bytes);

// Outputs, times, wall time, events, warnings and the verdict, from the ranks' records by rank.
// `started`: by rank, by its steady_seconds(), one moment for all. `one_clock`: so exactly that it
// can be said who waited for whom.
struct CommonTime {
  std::vector<Seconds> started;
  bool one_clock = true;
};
void report_ranks(const RunRequest& request, const Wiring& wiring, std::vector<RankRecord> records,
                  const Expected& expected, const CommonTime& time, RunReport& report);

}  // namespace autopar
