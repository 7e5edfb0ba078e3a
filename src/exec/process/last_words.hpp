// Time for last words. The launchers of MPICH and Open MPI end all ranks within a millisecond of
// one that was killed, often before rank 0 could say which rank it was.
#pragma once

namespace autopar {

// Where one of these has started this process: goes on in a child process, and leaves behind the
// process that the launcher knows, which ends as the child does, but a second later where that was
// killed. Nothing elsewhere. Call it before MPI is initialised and while there is one thread.
void keep_launcher_waiting();

}  // namespace autopar
