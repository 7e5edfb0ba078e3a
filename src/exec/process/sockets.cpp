#include "exec/process/sockets.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "exec/machine.hpp"

namespace autopar {

namespace {

constexpr std::size_t kMostAddresses = 64;  // a machine with containers has many

Error system_error(const std::string& what) {
  return runtime_error(what + ": " + std::strerror(errno));
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::int64_t Socket::send_some(std::string_view bytes) const {
  while (true) {
    const ssize_t put =
        ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put >= 0) return put;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return -1;
  }
}

std::int64_t Socket::receive_some(std::string& bytes, std::size_t most) const {
  const std::size_t before = bytes.size();
  bytes.resize(before + most);
  ssize_t got = 0;
  do {
    got = recv(descriptor_, bytes.data() + before, most, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  bytes.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got > 0) return got;
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
}

void Socket::use_for_frames(Seconds silence) const {
  const auto set = [this](int level, int option, int value) {
    setsockopt(descriptor_, level, option, &value, sizeof value);
  };
  const int seconds = static_cast<int>(std::clamp(silence, 4.0, 3600.0));
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, seconds / 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, seconds / 4);
  set(IPPROTO_TCP, TCP_KEEPCNT, 2);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);  // of what is sent and not acknowledged
}

void allow_descriptors(std::size_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= count) return;
  limit.rlim_cur = std::min<rlim_t>(count, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<Endpoint> endpoints_of(const std::string& host, int port, bool numbers_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = numbers_only ? AI_NUMERICHOST : 0;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  std::vector<Endpoint> endpoints;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    endpoints.push_back(
        {host, std::string(reinterpret_cast<const char*>(a->ai_addr), a->ai_addrlen)});
  }
  freeaddrinfo(found);
  return endpoints;
}

namespace {

sockaddr_storage system_address(const Endpoint& endpoint) {
  sockaddr_storage address{};
  std::memcpy(&address, endpoint.address.data(), std::min(endpoint.address.size(), sizeof address));
  return address;
}

Socket system_socket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Socket begin_connection(const Endpoint& endpoint) {
  const sockaddr_storage address = system_address(endpoint);
  Socket socket = system_socket(address.ss_family);
  if (!socket.is_open()) return socket;
  if (connect(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address),
              static_cast<socklen_t>(endpoint.address.size())) == 0 ||
      errno == EINPROGRESS) {
    return socket;
  }
  const int why = errno;
  socket = Socket();
  errno = why;
  return Socket();
}

int connection_error(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

namespace {

// Of one address family; with IPv6's a socket takes IPv4 too.
Endpoint endpoint_of(const in6_addr& host, int port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = host;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  return {"", std::string(reinterpret_cast<const char*>(&address), sizeof address)};
}

Endpoint endpoint_of(in_addr_t host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return {"", std::string(reinterpret_cast<const char*>(&address), sizeof address)};
}

// A socket that listens there; not open: errno says why.
Socket listen_at(const Endpoint& endpoint) {
  const sockaddr_storage address = system_address(endpoint);
  Socket socket = system_socket(address.ss_family);
  if (!socket.is_open()) return socket;
  const int on = 1;
  const int off = 0;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ss_family == AF_INET6) {
    setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(socket.descriptor(), reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(endpoint.address.size())) == 0 &&
      listen(socket.descriptor(), SOMAXCONN) == 0) {
    return socket;
  }
  const int why = errno;
  socket = Socket();
  errno = why;
  return Socket();
}

int port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

Result<Listener> Listener::open(int port, bool only_this_machine) {
  const Endpoint endpoints[] = {
      only_this_machine ? endpoint_of(INADDR_LOOPBACK, port) : endpoint_of(in6addr_any, port),
      only_this_machine ? endpoint_of(in6addr_loopback, port) : endpoint_of(INADDR_ANY, port),
  };
  for (const Endpoint& endpoint : endpoints) {
    Socket socket = listen_at(endpoint);
    if (socket.is_open()) {
      const int opened = port_of(socket.descriptor());
      return Listener(std::move(socket), opened);
    }
    // The machine may have one kind of addresses only.
    if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) break;
  }
  return system_error("rank 0 cannot listen on port " + std::to_string(port) +
                      " for the other ranks (set AUTOPAR_PORT to a free one on all ranks)");
}

Result<Listener> Listener::open_at(int port, const std::string& host) {
  errno = EADDRNOTAVAIL;
  for (const Endpoint& endpoint : endpoints_of(host, port)) {
    Socket socket = listen_at(endpoint);
    if (!socket.is_open()) continue;
    const int opened = port_of(socket.descriptor());
    return Listener(std::move(socket), opened);
  }
  return system_error(
      "rank 0 cannot listen on port " + std::to_string(port) + " of " + host +
      ", which is where it listens without a secret (set AUTOPAR_SECRET to the same random text on "
      "all ranks and it listens on all interfaces; AUTOPAR_PORT says another port)");
}

Socket Listener::accept() const {
  return Socket(accept4(socket_.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

namespace {

// As a number; empty: of a kind that other machines cannot use.
std::string text_of(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr) return "";
  if ((entry.ifa_flags & IFF_LOOPBACK) != 0 || (entry.ifa_flags & IFF_UP) == 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (entry.ifa_addr->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry.ifa_addr);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return "";
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace

std::vector<std::string> own_addresses(bool only_this_machine) {
  if (only_this_machine) return {"127.0.0.1", "::1"};
  std::vector<std::string> addresses;
  std::vector<std::string> of_ipv6;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    for (const ifaddrs* a = list; a != nullptr; a = a->ifa_next) {
      std::string text = text_of(*a);
      if (text.empty()) continue;
      (a->ifa_addr->sa_family == AF_INET ? addresses : of_ipv6).push_back(std::move(text));
    }
    freeifaddrs(list);
  }
  addresses.insert(addresses.end(), of_ipv6.begin(), of_ipv6.end());
  if (addresses.size() > kMostAddresses) addresses.resize(kMostAddresses);
  addresses.push_back(machine_name());
  return addresses;
}

}  // namespace autopar
