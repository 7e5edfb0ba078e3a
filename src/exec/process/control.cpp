#include "exec/process/control.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "exec/process/wire.hpp"
#include "exec/whereabouts.hpp"

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHelloMilliseconds = 5000;  // to wait for a connection's first words
constexpr int kLeastHello = 100;          // where the time is nearly over
constexpr Seconds kAfterRank0 = 1;

Clock::time_point after(Seconds seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, 1e8)));
}

int milliseconds_to(Clock::time_point deadline, int most) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, most));
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

// The first words of a connection after its cookie; nothing where a stranger has come, who may
// also begin and say no more.
std::optional<std::string> read_hello(int descriptor, std::uint8_t frame, const std::string& cookie,
                                      int milliseconds) {
  limit_reading(descriptor, milliseconds);
  Header header;
  if (!read_header(descriptor, header)) return std::nullopt;
  if (header.frame != frame || header.size > kMaxHello) return std::nullopt;
  std::string hello(header.size, '\0');
  if (!read_all(descriptor, hello.data(), hello.size())) return std::nullopt;
  if (hello.compare(0, cookie.size(), cookie) != 0) return std::nullopt;
  limit_reading(descriptor, 0);
  return hello.substr(cookie.size());
}

std::string list_missing(const std::vector<bool>& here) {
  std::vector<std::int64_t> missing;
  for (std::size_t r = 1; r < here.size(); ++r) {
    if (!here[r]) missing.push_back(static_cast<std::int64_t>(r));
  }
  return list_ranks(missing);
}

}  // namespace

Result<std::unique_ptr<ControlChannel>> ControlChannel::accept(Listener listener, int size,
                                                               const std::string& cookie,
                                                               Seconds timeout) {
  std::unique_ptr<ControlChannel> channel(new ControlChannel(0, size));
  channel->peers_.resize(static_cast<std::size_t>(size));
  for (auto& peer : channel->peers_) peer = std::make_unique<Peer>();
  std::vector<bool> here(static_cast<std::size_t>(size), false);
  const Clock::time_point deadline = after(timeout);
  for (int count = 1; count < size;) {
    if (!wait_readable(listener.descriptor(), milliseconds_to(deadline, 1000))) {
      if (Clock::now() < deadline) continue;
      return runtime_error(list_missing(here) + " of " + std::to_string(size) +
                           " did not come to rank 0 on port " + std::to_string(listener.port()) +
                           " in time");
    }
    const int descriptor = accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) continue;
    const int patience = std::max(kLeastHello, milliseconds_to(deadline, kHelloMilliseconds));
    const auto hello =
        read_hello(descriptor, static_cast<std::uint8_t>(Frame::kHello), cookie, patience);
    if (!hello) {
      close(descriptor);
      continue;
    }
    WireReader reader(*hello);
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
    channel->peers_[rank]->process = process;
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
    go_on_with_inquiry();
    watch_own_call();
    if (!failed_) continue;
    const std::lock_guard lock(mutex_);
    if (leaving_) continue;
    // Rank 0 goes first, since a launcher ends the others with whichever ends first.
    if (!deadline) deadline = after(kGrace + (rank_ == 0 ? 0 : kAfterRank0));
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
      if (rank_ == 0) tell_left(static_cast<int>(index));
      const std::lock_guard lock(mutex_);
      peer.bye = true;
      if (!payload.empty()) peer.last = whereabouts_of(payload);
      changed_.notify_all();
      return true;
    }
    case Frame::kLeft: {
      const std::lock_guard lock(mutex_);
      left_.emplace(WireReader(payload).number<std::int32_t>(), Clock::now());
      return true;
    }
    case Frame::kAsk:
      begin_inquiry(static_cast<int>(index), payload);
      return true;
    case Frame::kWhere:
      tell_whereabouts(payload);
      return true;
    case Frame::kHere:
      take_answer(index, payload);
      return true;
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

// Whoever waits for a rank that has left would wait for ever.
void ControlChannel::tell_left(int rank) {
  WireWriter payload;
  payload.put<std::int32_t>(rank);
  const std::string bytes = payload.take();
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (peers_[p]->descriptor >= 0 && static_cast<int>(p) != rank) {
      send(*peers_[p], Frame::kLeft, bytes);
    }
  }
  const std::lock_guard lock(mutex_);
  left_.emplace(rank, Clock::now());
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

void ControlChannel::say_at_once(const Error& why) {
  const std::string text = "autopar: error: " + why.message + "\n";
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
}

// Nothing of this program may run after it: the main thread can be anywhere. The message goes out
// first, since a launcher may be about to end this process too.
void ControlChannel::end_process(const Error& why) {
  if (rank_ == 0 || (rank_ == 1 && peers_[0]->bye)) {
    say_at_once(why);
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
  {
    const std::lock_guard lock(mutex_);
    on_failure_ = action;
    if (!failure_) return;
  }
  if (action) action();  // it has been too late for the watching thread
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
  if (rank_ == 0) tell_left(0);
  std::unique_lock lock(mutex_);
  leaving_ = true;
  if (rank_ != 0) {
    if (!failure_) {
      lock.unlock();
      send(*peers_[0], Frame::kBye, to_bytes(own_whereabouts()));
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
  if (failure) {
    say(*failure);
    tell_all(*failure);  // the watching thread may not have come to it; nothing is read after a bye
  }
  for (const auto& peer : peers_) {
    if (peer->descriptor >= 0) send(*peer, Frame::kBye, "");
  }
  if (!failure) return Ok{};
  lock.lock();
  changed_.wait_for(lock, std::chrono::duration<double>(kGrace), [this] { return all_gone(); });
  return *failure;
}

}  // namespace autopar
