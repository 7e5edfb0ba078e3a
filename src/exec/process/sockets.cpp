#include "exec/process/sockets.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace autopar {

namespace {

constexpr std::size_t kMostAddresses = 64;  // a machine with containers has many

Error system_error(const std::string& what) {
  return runtime_error(what + ": " + std::strerror(errno));
}

}  // namespace

bool wait_readable(int descriptor, int milliseconds) {
  pollfd entry{descriptor, POLLIN, 0};
  return poll(&entry, 1, milliseconds) > 0;
}

void limit_reading(int descriptor, int milliseconds) {
  const timeval limit{milliseconds / 1000, milliseconds % 1000 * 1000};
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

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

namespace {

// Where to listen, as the system knows it.
struct Place {
  sockaddr_storage address{};
  socklen_t size = 0;
};

Place place_of(const in6_addr& host, int port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = host;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  Place place;
  std::memcpy(&place.address, &address, sizeof address);
  place.size = sizeof address;
  return place;
}

Place place_of(in_addr_t host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(host);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  Place place;
  std::memcpy(&place.address, &address, sizeof address);
  place.size = sizeof address;
  return place;
}

// A socket that listens there, or -1 with errno. One of IPv6 takes IPv4 too.
int listen_at(const Place& place) {
  const int descriptor = socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  const int on = 1;
  const int off = 0;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (place.address.ss_family == AF_INET6) {
    setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (bind(descriptor, reinterpret_cast<const sockaddr*>(&place.address), place.size) == 0 &&
      listen(descriptor, SOMAXCONN) == 0) {
    return descriptor;
  }
  const int why = errno;
  close(descriptor);
  errno = why;
  return -1;
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
  const Place places[] = {
      only_this_machine ? place_of(INADDR_LOOPBACK, port) : place_of(in6addr_any, port),
      only_this_machine ? place_of(in6addr_loopback, port) : place_of(INADDR_ANY, port),
  };
  for (const Place& place : places) {
    const int descriptor = listen_at(place);
    if (descriptor >= 0) return Listener(descriptor, port_of(descriptor));
    // The machine may have one kind of addresses only.
    if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) break;
  }
  return system_error("rank 0 cannot listen on port " + std::to_string(port) +
                      " for the other ranks (set AUTOPAR_PORT to a free one on all ranks)");
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
