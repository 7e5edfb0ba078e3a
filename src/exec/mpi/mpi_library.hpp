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

// The MPIs that there is a shared library for: "openmpi", "mpich".
std::vector<std::string> built_mpi_names();
// Where that library is looked for, in this order.
std::vector<std::string> mpi_shim_candidates(const std::string& name);

// Opens the first of libautopar_NAME.so in these folders that can be opened. Errors (kInput): none
// is there, with the places where it was looked for; or why those that are there cannot be opened.
Result<void*> open_shim(const std::vector<std::string>& names,
                        const std::vector<std::string>& folders);

// Errors: kInput as open_shim(); kUsage as mpi_names().
Result<const AutoparMpiTable*> open_mpi_library();

}  // namespace autopar
