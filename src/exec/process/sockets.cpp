#include "exec/process/sockets.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace autopar {

namespace {

Error system_error(const std::string& what) {
  return runtime_error(what + ": " + std::strerror(errno));
}

}  // namespace

bool wait_readable(int descriptor, int milliseconds) {
  pollfd entry{descriptor, POLLIN, 0};
  return poll(&entry, 1, milliseconds) > 0;
}

// False: the connection has ended.
bool read_all(int descriptor, void* to, std::size_t size) {
  char* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = recv(descriptor, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int descriptor, const void* from, std::size_t size) {
  const char* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t put = ::send(descriptor, at, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    size -= static_cast<std::size_t>(put);
  }
  return true;
}

std::string machine_name() {
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

void set_no_delay(int descriptor) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// A connected socket, or -1 with errno.
int connect_to(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    errno = EHOSTUNREACH;
    return -1;
  }
  int descriptor = -1;
  for (const addrinfo* a = found; a != nullptr && descriptor < 0; a = a->ai_next) {
    descriptor = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (descriptor < 0) continue;
    timeval limit{2, 0};  // of connect() too
    setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(descriptor, a->ai_addr, a->ai_addrlen) != 0) {
      const int why = errno;
      close(descriptor);
      errno = why;
      descriptor = -1;
    }
  }
  freeaddrinfo(found);
  if (descriptor < 0) return -1;
  const timeval none{0, 0};
  setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
  set_no_delay(descriptor);
  return descriptor;
}

Result<Listener> Listener::open(int port, bool only_this_machine) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return system_error("rank 0 cannot open a socket");
  Listener listener(descriptor, port);
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(only_this_machine ? INADDR_LOOPBACK : INADDR_ANY);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(descriptor, SOMAXCONN) != 0) {
    return system_error("rank 0 cannot listen on port " + std::to_string(port) +
                        " for the other ranks (set AUTOPAR_PORT to a free one on all ranks)");
  }
  socklen_t size = sizeof address;
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  listener.port_ = ntohs(address.sin_port);
  return listener;
}

Listener::Listener(Listener&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), port_(other.port_) {}
Listener& Listener::operator=(Listener&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  port_ = other.port_;
  return *this;
}
Listener::~Listener() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<std::string> own_addresses(bool only_this_machine) {
  if (only_this_machine) return {"127.0.0.1"};
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
      if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET) continue;
      if ((a->ifa_flags & IFF_LOOPBACK) != 0 || (a->ifa_flags & IFF_UP) == 0) continue;
      char text[INET_ADDRSTRLEN];
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(a->ifa_addr);
      if (inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text) != nullptr) {
        addresses.emplace_back(text);
      }
    }
    freeifaddrs(list);
  }
  addresses.push_back(machine_name());
  return addresses;
}

}  // namespace autopar
