#include "exec/process/control.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "exec/process/wire.hpp"

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHelloMilliseconds = 5000;  // to wait for a connection's first words
constexpr std::size_t kListedRanks = 8;   // in a message

Clock::time_point after(Seconds seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, 1e8)));
}

int milliseconds_to(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
}

Error system_error(const std::string& what) {
  return runtime_error(what + ": " + std::strerror(errno));
}

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

struct Header {
  std::uint8_t frame = 0;
  std::uint64_t size = 0;
};
constexpr std::size_t kHeaderBytes = 1 + sizeof(std::uint64_t);
constexpr std::uint64_t kMaxHello = 4096;  // a stranger on the port must not cost memory

bool read_header(int descriptor, Header& header) {
  char bytes[kHeaderBytes];
  if (!read_all(descriptor, bytes, sizeof bytes)) return false;
  header.frame = static_cast<std::uint8_t>(bytes[0]);
  std::memcpy(&header.size, bytes + 1, sizeof header.size);
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

std::string list_missing(const std::vector<bool>& here) {
  std::string text;
  std::size_t missing = 0;
  for (std::size_t r = 1; r < here.size(); ++r) {
    if (here[r]) continue;
    if (++missing <= kListedRanks) text += (text.empty() ? "" : ", ") + std::to_string(r);
  }
  if (missing > kListedRanks) text += " and " + std::to_string(missing - kListedRanks) + " more";
  return text;
}

}  // namespace

Result<ControlChannel::Listener> ControlChannel::Listener::open(int port, bool only_this_machine) {
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

ControlChannel::Listener::Listener(Listener&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), port_(other.port_) {}
ControlChannel::Listener& ControlChannel::Listener::operator=(Listener&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  port_ = other.port_;
  return *this;
}
ControlChannel::Listener::~Listener() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<std::string> ControlChannel::own_addresses(bool only_this_machine) {
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

Result<std::unique_ptr<ControlChannel>> ControlChannel::accept(Listener listener, int size,
                                                               const std::string& cookie,
                                                               Seconds timeout) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(0, size));
  channel->peers_.resize(static_cast<std::size_t>(size));
  for (auto& peer : channel->peers_) peer = std::make_unique<Peer>();
  std::vector<bool> here(static_cast<std::size_t>(size), false);
  const Clock::time_point deadline = after(timeout);
  for (int count = 1; count < size;) {
    if (!wait_readable(listener.descriptor(), milliseconds_to(deadline))) {
      if (Clock::now() < deadline) continue;
      return runtime_error("ranks " + list_missing(here) + " of " + std::to_string(size) +
                           " have not come to rank 0 on port " + std::to_string(listener.port()) +
                           " in time");
    }
    const int descriptor = accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) continue;
    Header header;
    std::string hello;
    bool good = wait_readable(descriptor, kHelloMilliseconds) && read_header(descriptor, header) &&
                header.frame == static_cast<std::uint8_t>(Frame::kHello) &&
                header.size <= kMaxHello;
    if (good) {
      hello.resize(header.size);
      good = read_all(descriptor, hello.data(), hello.size());
    }
    if (good) good = hello.size() >= cookie.size() && hello.compare(0, cookie.size(), cookie) == 0;
    if (!good) {
      close(descriptor);
      continue;
    }
    WireReader reader(std::string_view(hello).substr(cookie.size()));
    const auto rank = static_cast<std::size_t>(reader.number<std::int32_t>());
    const std::string process = reader.text();
    if (rank == 0 || rank >= here.size() || here[rank]) {
      close(descriptor);
      return runtime_error("two processes say that they are rank " + std::to_string(rank) + " of " +
                           std::to_string(size));
    }
    here[rank] = true;
    ++count;
    set_no_delay(descriptor);
    channel->peers_[rank]->descriptor = descriptor;
    channel->peers_[rank]->name = "rank " + std::to_string(rank) + " (" + process + ")";
  }
  channel->start();
  return channel;
}

Result<std::unique_ptr<ControlChannel>> ControlChannel::connect(const Address& address, int rank,
                                                                int size, Seconds timeout) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(rank, size));
  channel->peers_.push_back(std::make_unique<Peer>());
  Peer& peer = *channel->peers_[0];
  const Clock::time_point deadline = after(timeout);
  std::string tried;
  while (peer.descriptor < 0) {
    tried.clear();
    for (const std::string& host : address.hosts) {
      peer.descriptor = connect_to(host, address.port);
      if (peer.descriptor >= 0) break;
      tried += (tried.empty() ? "" : ", ") + host + " (" + std::strerror(errno) + ")";
    }
    if (peer.descriptor >= 0) break;
    if (Clock::now() >= deadline) {
      return runtime_error("rank " + std::to_string(rank) + " cannot reach rank 0 on port " +
                           std::to_string(address.port) + " of " + tried);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  peer.name = "rank 0";
  WireWriter hello;
  hello.put<std::int32_t>(rank);
  hello.put_text("process " + std::to_string(getpid()) + " on " + machine_name());
  channel->send(peer, Frame::kHello, address.cookie + hello.take());
  channel->start();
  return channel;
}

void ControlChannel::start() {
  AUTOPAR_CHECK(pipe(wake_) == 0, "no pipe for the control channel");
  watcher_ = std::thread([this] { watch(); });
}

ControlChannel::~ControlChannel() {
  if (watcher_.joinable()) {
    const char end = 0;
    static_cast<void>(!write(wake_[1], &end, 1));
    watcher_.join();
  }
  for (int descriptor : wake_) {
    if (descriptor >= 0) close(descriptor);
  }
  for (const auto& peer : peers_) {
    if (peer->descriptor >= 0) close(peer->descriptor);
  }
}

void ControlChannel::watch() {
  std::optional<Clock::time_point> deadline;  // of the main thread, after a failure
  while (true) {
    std::vector<pollfd> entries{{wake_[0], POLLIN, 0}};
    std::vector<std::size_t> peers{0};
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (peers_[p]->descriptor < 0) continue;
      const std::lock_guard lock(mutex_);
      if (peers_[p]->bye) continue;
      entries.push_back({peers_[p]->descriptor, POLLIN, 0});
      peers.push_back(p);
    }
    if (poll(entries.data(), entries.size(), 200) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].revents == 0) continue;
      Peer& peer = *peers_[peers[i]];
      if (read_frame(peers[i])) continue;
      {
        const std::lock_guard lock(mutex_);
        peer.bye = true;
        changed_.notify_all();
      }
      if (failed_) continue;  // the rank has said why before it went
      end_process(runtime_error(peer.name + " ended without a word: it was killed or crashed"));
    }
    if (!failed_) continue;
    const std::lock_guard lock(mutex_);
    if (leaving_) continue;
    if (!deadline) deadline = after(kGrace);
    if (Clock::now() >= *deadline) end_process(*failure_);  // the main thread is in a long local op
  }
}

bool ControlChannel::read_frame(std::size_t index) {
  Peer& peer = *peers_[index];
  Header header;
  if (!read_header(peer.descriptor, header)) return false;
  std::string payload(header.size, '\0');
  if (!read_all(peer.descriptor, payload.data(), payload.size())) return false;
  switch (static_cast<Frame>(header.frame)) {
    case Frame::kData: {
      const std::lock_guard lock(mutex_);
      peer.received.push_back(std::move(payload));
      changed_.notify_all();
      return true;
    }
    case Frame::kFailure: {
      WireReader reader(payload);
      const auto code = static_cast<ErrorCode>(reader.number<std::int32_t>());
      take_failure({code, reader.text()});
      return true;
    }
    case Frame::kBye: {
      const std::lock_guard lock(mutex_);
      peer.bye = true;
      changed_.notify_all();
      return true;
    }
    case Frame::kHello:
      break;
  }
  return false;
}

void ControlChannel::tell_all(const Error& failure) {
  WireWriter payload;
  payload.put<std::int32_t>(static_cast<int>(failure.code));
  payload.put_text(failure.message);
  const std::string bytes = payload.take();
  for (const auto& peer : peers_) {
    if (peer->descriptor >= 0) send(*peer, Frame::kFailure, bytes);
  }
}

void ControlChannel::take_failure(const Error& failure) {
  std::function<void()> action;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = failure;
    failed_ = true;
    action = on_failure_;
    changed_.notify_all();
  }
  if (rank_ == 0) tell_all(failure);
  if (action) action();
}

// Nothing of this program may run after it: the main thread can be anywhere. The message goes out
// first, since a launcher may be about to end this process too.
void ControlChannel::end_process(const Error& why) {
  if (rank_ == 0 || (rank_ == 1 && peers_[0]->bye)) {
    const std::string text = "autopar: error: " + why.message + "\n";
    static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  }
  if (rank_ == 0) tell_all(why);
  if (on_sudden_end_) on_sudden_end_();
  _exit(static_cast<int>(why.code));
}

void ControlChannel::send(Peer& peer, Frame frame, std::string_view payload) {
  const std::lock_guard lock(peer.writing);
  char header[kHeaderBytes];
  header[0] = static_cast<char>(frame);
  const std::uint64_t size = payload.size();
  std::memcpy(header + 1, &size, sizeof size);
  // Where the other end is gone, the watching thread learns it.
  if (write_all(peer.descriptor, header, sizeof header)) {
    write_all(peer.descriptor, payload.data(), payload.size());
  }
}

Result<std::string> ControlChannel::next(Peer& peer) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_.has_value() || !peer.received.empty(); });
  if (failure_) return *failure_;
  std::string bytes = std::move(peer.received.front());
  peer.received.pop_front();
  return bytes;
}

Result<std::string> ControlChannel::broadcast(std::string from_rank_0) {
  if (rank_ != 0) return next(*peers_[0]);
  for (const auto& peer : peers_) {
    if (peer->descriptor >= 0) send(*peer, Frame::kData, from_rank_0);
  }
  if (auto failure = this->failure()) return *failure;
  return from_rank_0;
}

Result<std::vector<std::string>> ControlChannel::gather(std::string own) {
  if (rank_ != 0) {
    send(*peers_[0], Frame::kData, own);
    if (auto failure = this->failure()) return *failure;
    return std::vector<std::string>();
  }
  std::vector<std::string> all{std::move(own)};
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    AUTOPAR_TRY(bytes, next(*peers_[r]));
    all.push_back(std::move(bytes));
  }
  return all;
}

Status ControlChannel::barrier() {
  AUTOPAR_TRY(all, gather(""));
  static_cast<void>(all);
  AUTOPAR_TRY(go, broadcast(""));
  static_cast<void>(go);
  return Ok{};
}

std::optional<Error> ControlChannel::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ControlChannel::report(const Error& own) {
  if (rank_ == 0) return take_failure(own);
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = own;
    failed_ = true;
    changed_.notify_all();
  }
  WireWriter payload;
  payload.put<std::int32_t>(static_cast<int>(own.code));
  payload.put_text(own.message);
  send(*peers_[0], Frame::kFailure, payload.take());
}

void ControlChannel::on_failure(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  on_failure_ = std::move(action);
}

void ControlChannel::on_sudden_end(std::function<void()> action) {
  const std::lock_guard lock(mutex_);
  on_sudden_end_ = std::move(action);
}

bool ControlChannel::all_gone() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& peer) { return peer->descriptor < 0 || peer->bye; });
}

Status ControlChannel::leave(const std::function<void(const Error&)>& say) {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  if (rank_ != 0) {
    if (!failure_) {
      lock.unlock();
      send(*peers_[0], Frame::kBye, "");
      lock.lock();
    }
    // Rank 0 ends the run, so that its message is out before a launcher sees a process end.
    const auto ended = [this] { return peers_[0]->bye; };
    changed_.wait(lock, [&] { return failure_.has_value() || ended(); });
    if (!failure_) return Ok{};
    changed_.wait_for(lock, std::chrono::duration<double>(kGrace), ended);
    return *failure_;
  }
  changed_.wait(lock, [&] { return failure_.has_value() || all_gone(); });
  const std::optional<Error> failure = failure_;
  lock.unlock();
  if (failure) say(*failure);
  for (const auto& peer : peers_) {
    if (peer->descriptor >= 0) send(*peer, Frame::kBye, "");
  }
  if (!failure) return Ok{};
  lock.lock();
  changed_.wait_for(lock, std::chrono::duration<double>(kGrace), [this] { return all_gone(); });
  return *failure;
}

}  // namespace autopar
