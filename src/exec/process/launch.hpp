// What a launcher says of this process in its environment.
#pragma once

#include <optional>
#include <string>

#include "autopar/support.hpp"

namespace autopar {

struct Launch {
  int rank = 0;
  int size = 1;
  int local_rank = 0;    // among the ranks of this machine
  int local_size = 1;    // 0: not said
  std::string launcher;  // "torchrun", "Open MPI", "PMI", "Slurm"
  std::string address;   // of rank 0; empty: not said
  int port = 0;          // at which rank 0 listens; 0: not said
};

// From, in this order: RANK and WORLD_SIZE (torchrun), OMPI_COMM_WORLD_RANK (Open MPI), PMI_RANK
// (MPICH, srun), SLURM_PROCID (srun). The port is AUTOPAR_PORT, else MASTER_PORT, else, where
// torchrun's own store occupies that (TORCHELASTIC_USE_AGENT_STORE), the port after it. Nothing
// where no launcher has started this process. Errors (kUsage): a variable that is no number, a rank
// that is not below the size. Sources: the manuals of torchrun, Open MPI, MPICH's Hydra and Slurm.
Result<std::optional<Launch>> launch_of_environment();

// AUTOPAR_SECRET, or what is in the file that AUTOPAR_SECRET_FILE names; empty where neither is
// set. Errors (kUsage): one is set and there is no secret in it.
Result<std::string> secret_of_environment();

// How many processes srun has started with this one; 0: it was not srun.
int tasks_of_srun();

}  // namespace autopar
