// Where rank 0 waits for the others where no MPI has started them.
#pragma once

#include <string>

#include "autopar/support.hpp"
#include "exec/process/launch.hpp"
#include "exec/process/sockets.hpp"

namespace autopar {

// On one machine the loopback interface; with a secret all interfaces; else the one that has rank
// 0's address. Errors as Listener's.
Result<Listener> listen_as_rank_0(const Launch& launch, const std::string& secret);

}  // namespace autopar
