// Finds and opens the shared library for the MPI that has started this process.
#pragma once

#include <string>
#include <vector>

#include "autopar/support.hpp"
#include "exec/mpi/mpi_table.h"

namespace autopar {

// "openmpi" or "mpich": what AUTOPAR_MPI says, else whose launcher's variables are there (Open MPI
// and PMIx: openmpi; PMI: mpich), then those that were built, in their order. Errors (kUsage):
// AUTOPAR_MPI names something else.
Result<std::vector<std::string>> mpi_names();

// Errors: kInput naming every file that was tried and what to do.
Result<const AutoparMpiTable*> open_mpi_library();

}  // namespace autopar
