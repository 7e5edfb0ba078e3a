// TCP between the processes of a run: what the control channel needs of the system.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

// A descriptor that is closed with this object; -1: none.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

  // Neither waits. How many bytes were sent or appended to `bytes`; 0: none now, but there may be
  // later; negative: the other end has ended, or cannot be reached.
  std::int64_t send_some(std::string_view bytes) const;
  std::int64_t receive_some(std::string& bytes, std::size_t most) const;
  // Small things go at once, and the other end counts as ended when its machine has not answered
  // for so long.
  void use_for_frames(Seconds silence) const;

 private:
  int descriptor_ = -1;
};

// Where to connect to, as the system knows it.
struct Endpoint {
  std::string name;     // for messages
  std::string address;  // bytes of a sockaddr
};
// Of a name or number; empty: there is none. Asks the name service for names, which may take it
// seconds, unless only numbers are wanted.
std::vector<Endpoint> endpoints_of(const std::string& host, int port, bool numbers_only = false);
// A connection that is being made: the socket becomes writable, and connection_error() is then 0 or
// the reason why not. Not open: errno says why.
Socket begin_connection(const Endpoint& endpoint);
int connection_error(const Socket& socket);

// The addresses at which this machine can be reached, best first.
std::vector<std::string> own_addresses(bool only_this_machine);

// Allows this process so many descriptors, as far as the system lets it.
void allow_descriptors(std::size_t count);

// Rank 0's socket, before the others know of it.
class Listener {
 public:
  // On all interfaces, or only for processes of this machine. Port 0: any. Errors: kRuntime with
  // the system's reason.
  static Result<Listener> open(int port, bool only_this_machine);
  // On the interface with the host's address only. Errors: also where this machine has none.
  static Result<Listener> open_at(int port, const std::string& host);
  int port() const { return port_; }
  int descriptor() const { return socket_.descriptor(); }
  // The next connection, not open where there is none now: errno says why. Does not wait.
  Socket accept() const;

 private:
  Listener(Socket socket, int port) : socket_(std::move(socket)), port_(port) {}
  Socket socket_;
  int port_ = 0;
};

}  // namespace autopar
