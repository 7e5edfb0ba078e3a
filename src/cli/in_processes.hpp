// Commands whose ranks are processes.
#pragma once

#include <functional>
#include <string>

#include "autopar/exec.hpp"

namespace autopar::cli {

// Does the work as one of the ranks, which are processes by `ranks_by` ("mpi", "nccl"). Only rank 0
// prints; what goes wrong elsewhere reaches it. The exit code; errors: of joining, of rank 0's
// work.
Result<int> in_processes(const std::string& ranks_by, Seconds timeout,
                         const std::function<Result<int>(ProcessWorld&)>& work);

}  // namespace autopar::cli
