#include "exec/process/listen.hpp"

namespace autopar {

Result<Listener> listen_as_rank_0(const Launch& launch, const std::string& secret) {
  const bool one_machine = launch.local_size == launch.size;
  if (one_machine || !secret.empty()) return Listener::open(launch.port, one_machine);
  return Listener::open_at(launch.port, launch.address.empty() ? "127.0.0.1" : launch.address);
}

}  // namespace autopar
