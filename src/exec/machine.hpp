// The machine that this process runs on, as the run's other processes are told of it.
#pragma once

#include <string>

namespace autopar {

// Its whole host name: ranks that have the same one share a machine.
std::string machine_name();

}  // namespace autopar
