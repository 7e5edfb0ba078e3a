// When every rank did what in a run, and how fast its collectives were.
//
//   request.timeline = true;                  // of RunRequest
//   for (const RunEvent& event : report.events) ...
#pragma once

#include <string>
#include <vector>

#include "autopar/comm.hpp"

namespace autopar {

// One op of one rank, or one run of the whole program (an empty kind).
struct RunEvent {
  int rank = 0;
  int run = 0;        // 0: the first; the others are those of --repeat
  int step = 0;       // within the run
  int call = 0;       // of the rank's programs within the step
  std::string name;   // of the node
  std::string kind;   // op type
  Seconds begin = 0;  // one time for all ranks, which have begun at about 0
  Seconds seconds = 0;
  // Of what communicates only.
  std::int64_t seq = -1;   // -1: does not
  std::int64_t first = 0;  // of the ranks of the group, in its order
  std::int64_t group_size = 1;
  int peer = -1;           // Send and Recv: the other rank
  double total_bytes = 0;  // as below
  double bus_factor = 1;
  // Until the last rank of the group had come, the rest moves data; negative: not known.
  Seconds waiting = -1;

  double algorithm_bandwidth() const { return seconds > 0 ? total_bytes / seconds : 0; }
  double bus_bandwidth() const { return bus_factor * algorithm_bandwidth(); }
};

// The size of a collective in the convention of nccl-tests (doc/PERFORMANCE.md): the tensor's whole
// size, which is the larger of a rank's input and output. Algorithm bandwidth is this over the
// time.
double total_bytes(CollectiveKind kind, double input_bytes, std::int64_t group_size);
// Bus bandwidth is the algorithm bandwidth times this, the part of the data that each link has to
// carry: AllReduce 2(n-1)/n, AllGather, ReduceScatter and AllToAll (n-1)/n, others 1. Same source.
double bus_factor(CollectiveKind kind, std::int64_t group_size);

// The least, the middle and the mean of several measurements; all 0 where there are none.
struct Spread {
  Seconds minimum = 0;
  Seconds median = 0;  // of an even number: the mean of the two in the middle
  Seconds mean = 0;
};
Spread spread_of(std::vector<Seconds> seconds);

}  // namespace autopar
