// Finds and opens the MPI library that has started this process, and the small library between it
// and this program (mpi_shim.cpp), which is compiled for each kind of MPI and linked to none.
#pragma once

#include <string>
#include <vector>

#include "autopar/support.hpp"
#include "exec/mpi/mpi_table.h"

namespace autopar {

// The kinds of MPI that this program was built for: "openmpi", "mpich".
std::vector<std::string> built_mpi_names();

// "openmpi" or "mpich": what AUTOPAR_MPI says, else whose launcher's variables are there (Open MPI
// and PMIx: openmpi; PMI: mpich), then those that were built, in their order. Errors (kUsage):
// AUTOPAR_MPI names something else.
Result<std::vector<std::string>> mpi_names();

struct MpiLibrary {
  const AutoparMpiTable* table = nullptr;
  std::string path;  // of the MPI library itself
};

// The first of these kinds of MPI that is here and for which libautopar_NAME.so is in one of the
// folders. AUTOPAR_MPI_LIBRARY names the file of the MPI library where it is not found. A process
// can have one MPI only. Errors (kInput): no libautopar_NAME.so, no MPI library, or one of another
// kind, with all files that were tried and what to do.
Result<MpiLibrary> open_mpi(const std::vector<std::string>& names,
                            const std::vector<std::string>& folders);

// That of this process. Errors: as open_mpi() and mpi_names().
Result<const AutoparMpiTable*> open_mpi_library();

}  // namespace autopar
