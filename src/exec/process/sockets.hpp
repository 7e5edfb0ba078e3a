// TCP between the processes of a run: what the control channel needs of the system.
#pragma once

#include <string>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

bool wait_readable(int descriptor, int milliseconds);
// How long read_all may wait for the next bytes; 0: as long as it takes.
void limit_reading(int descriptor, int milliseconds);
// Block until all is there. False: the connection has ended, or nothing has come for too long.
bool read_all(int descriptor, void* to, std::size_t size);
bool write_all(int descriptor, const void* from, std::size_t size);

// A connected socket without delays, or -1 with errno.
int connect_to(const std::string& host, int port);
void set_no_delay(int descriptor);

std::string machine_name();
// The addresses at which this machine can be reached, best first.
std::vector<std::string> own_addresses(bool only_this_machine);

// Rank 0's socket, before the others know of it.
class Listener {
 public:
  // Port 0: any. Errors: kRuntime with the system's reason.
  static Result<Listener> open(int port, bool only_this_machine);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  ~Listener();
  int port() const { return port_; }
  int descriptor() const { return descriptor_; }

 private:
  Listener(int descriptor, int port) : descriptor_(descriptor), port_(port) {}
  int descriptor_ = -1;
  int port_ = 0;
};

}  // namespace autopar
