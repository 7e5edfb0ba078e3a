// How the processes of a run come together, one way per kind of rank.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "autopar/exec.hpp"
#include "exec/process/control.hpp"
#include "exec/process/launch.hpp"

namespace autopar {

// A process that has joined the others. The communicator uses what the control channel says, so
// that it goes first.
struct Joined {
  std::unique_ptr<ControlChannel> control;
  std::unique_ptr<Communicator> communicator;
  std::string description;       // "processes by Open MPI 4.1.4"
  int local_size = 0;            // ranks on this machine; 0: not known
  std::function<void()> finish;  // the end of a run without a failure; may be empty
  // Ends all processes after a failure, with this exit code; may be empty.
  std::function<void(int)> stop;
};

// `ranks_by` as ProcessWorld::join.
Result<Joined> join_ranks(const std::string& ranks_by, Seconds timeout);
Result<Joined> join_mpi(Seconds timeout);
Result<Joined> join_nccl(Seconds timeout);

// The control channel alone: over MPI, or at the address of the launcher's variables. There rank 0
// listens only for its own machine where all ranks are on it, else on all interfaces where the
// ranks have a secret of their own, and on that of MASTER_ADDR where they have none.
Result<Joined> join_control_by_mpi(Seconds timeout);
Result<Joined> join_control_at_address(const Launch& launch, Seconds timeout);

}  // namespace autopar
