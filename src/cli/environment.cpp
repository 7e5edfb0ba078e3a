#include "cli/environment.hpp"

namespace autopar::cli {

const std::vector<EnvironmentVariable>& environment_variables() {
  static const std::vector<EnvironmentVariable> table = {
      {"AUTOPAR_ORT",
       "Path of the ONNX Runtime library that `run` and `calibrate` open, or of the folder that it "
       "is "
       "in. Without it the library installed with autopar is taken, then the dynamic linker's."},
      {"AUTOPAR_MPI",
       "`openmpi` or `mpich`: which MPI `--ranks-by mpi` uses, where the launcher's variables do "
       "not "
       "tell."},
      {"AUTOPAR_MPI_LIBRARY",
       "Path of the MPI library, where neither the dynamic linker finds it nor it lies beside the "
       "`mpirun` on the path: libmpi.so.40 of Open MPI, libmpi.so.12 of MPICH and those like it "
       "(Intel MPI, MVAPICH)."},
      {"AUTOPAR_NCCL",
       "Path of the library libnccl.so.2 that `--ranks-by nccl` opens, where the dynamic linker "
       "does "
       "not find it or finds another one. NCCL must be 2.18.1 or newer."},
      {"AUTOPAR_CUDART",
       "Path of the library libcudart.so.13 (or .12) that `--ranks-by nccl` opens, likewise."},
      {"AUTOPAR_PORT",
       "Port at which rank 0 listens for the other processes where no MPI has started them; else "
       "MASTER_PORT."},
      {"AUTOPAR_SECRET",
       "What all processes of a run know and others do not, where no MPI has started them. Without "
       "it rank 0 listens only on the interface that has the address of MASTER_ADDR.",
       true},
      {"AUTOPAR_SECRET_FILE", "The file whose first line is that secret."},
      {"AUTOPAR_RANKS_BY",
       "What the ranks of the ops library (libautopar_ops.so) are: `mpi`, `nccl` or `none`, where "
       "the launcher's variables are not to be asked."},
      {"AUTOPAR_TIMEOUT",
       "How many seconds a collective of the ops library may wait for other ranks."},
  };
  return table;
}

}  // namespace autopar::cli
