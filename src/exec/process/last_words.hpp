// Time for last words. The launchers of MPICH and Open MPI end all ranks within a millisecond of
// one that was killed, often before rank 0 could say which rank it was.
#pragma once

namespace autopar {

// Where one of these has started this process: goes on in a child process, and leaves behind the
// process that the launcher knows, which ends as the child does, but a second later where that was
// killed. Nothing elsewhere. Call it before MPI is initialised and while there is one thread.
void keep_launcher_waiting();

// MPI's transports abort a process whose peer was killed in the middle of a message (UCX does).
// From now on a thread that aborts waits some seconds before the process ends, so that the one that
// watches the other ranks says which of them it was, and ends the process itself.
void wait_before_abort();

}  // namespace autopar
