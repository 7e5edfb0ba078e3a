#include "exec/process/control.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "exec/process/last_words.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

namespace {

constexpr Seconds kLonger = 15;  // than a call may take: those who wait in it say more

}  // namespace

Result<std::unique_ptr<ControlChannel>> ControlChannel::accept(Listener listener, int size,
                                                               const std::string& secret,
                                                               Seconds timeout) {
  AUTOPAR_TRY(joined, accept_ranks(listener, size, secret, timeout));
  std::unique_ptr<ControlChannel> channel(new ControlChannel(0, std::move(joined), timeout));
  channel->start();
  return channel;
}

Result<std::unique_ptr<ControlChannel>> ControlChannel::connect(const Rank0Address& address,
                                                                int rank, int size,
                                                                Seconds timeout) {
  AUTOPAR_TRY(rank_0, reach_rank_0(address, rank, size, timeout));
  std::vector<JoinedRank> joined;
  joined.push_back(std::move(rank_0));
  std::unique_ptr<ControlChannel> channel(new ControlChannel(rank, std::move(joined), timeout));
  channel->size_ = size;
  channel->start();
  return channel;
}

ControlChannel::ControlChannel(int rank, std::vector<JoinedRank> joined, Seconds timeout)
    : rank_(rank),
      size_(static_cast<int>(joined.size())),
      peers_(joined.size()),
      silence_limit_(timeout + kLonger),
      gone_(joined.size(), false),
      inquiry_(size_) {
  AUTOPAR_CHECK(pipe2(wake_, O_CLOEXEC | O_NONBLOCK) == 0, "no pipe for the control channel");
  std::vector<Link*> links;
  looked_ = std::chrono::steady_clock::now();
  for (std::size_t p = 0; p < joined.size(); ++p) {
    Peer& peer = peers_[p];
    peer.process = joined[p].process;
    peer.name = "rank " + std::to_string(rank_of(p));
    if (!peer.process.empty()) peer.name += " (" + peer.process + ")";
    peer.heard = peer.spoke = looked_;
    if (joined[p].socket.is_open()) {
      joined[p].socket.use_for_frames(silence_limit_);
      peer.link = std::make_unique<Link>(std::move(joined[p].socket), std::move(joined[p].reader),
                                         [this] { wake(); });
    }
    gone_[p] = peer.link == nullptr;
    links.push_back(peer.link.get());
  }
  bus_ = std::make_unique<Bus>(rank, std::move(links));
}

void ControlChannel::start() {
  wait_before_abort();
  watcher_ = std::thread([this] { watch(); });
}

void ControlChannel::wake() {
  const char something = 0;
  static_cast<void>(!write(wake_[1], &something, 1));  // a full pipe wakes too
}

ControlChannel::~ControlChannel() {
  is_over_ = true;
  wake();
  if (watcher_.joinable()) watcher_.join();
  for (int descriptor : wake_) {
    if (descriptor >= 0) close(descriptor);
  }
}

void ControlChannel::tell_failure(const Error& failure) {
  const std::string bytes = to_bytes(failure);
  for (const Peer& peer : peers_) {
    if (peer.link) peer.link->post(FrameKind::kFailure, bytes);
  }
}

// What this rank is to do comes before the others learn of it: they may end this process.
bool ControlChannel::take_failure(const Error& failure) {
  if (!failure_.take(failure)) return false;
  bus_->fail(failure);
  {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  if (rank_ == 0) tell_failure(failure);
  return true;
}

void ControlChannel::report(const Error& own) {
  if (take_failure(own) && rank_ != 0) tell_failure(own);
}

void ControlChannel::note_left(int rank) {
  const std::lock_guard lock(mutex_);
  left_.emplace(rank, std::chrono::steady_clock::now());
}

// Whoever waits for a rank that has left would wait for ever.
void ControlChannel::tell_left(int rank) {
  WireWriter writer;
  writer.put<std::int32_t>(rank);
  const std::string bytes = writer.take();
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    if (peers_[p].link && rank_of(p) != rank) peers_[p].link->post(FrameKind::kLeft, bytes);
  }
  note_left(rank);
}

Whereabouts ControlChannel::own_whereabouts() const {
  Whereabouts where = calls_.whereabouts();
  const std::lock_guard lock(mutex_);
  where.finished = leaving_;
  return where;
}

bool ControlChannel::all_gone() const {
  return std::find(gone_.begin(), gone_.end(), false) == gone_.end();
}

void ControlChannel::wait_until_sent(Seconds at_most) const {
  const SteadyTime until = after(at_most);
  for (const Peer& peer : peers_) {
    if (peer.link) peer.link->wait_until_sent(0, until, [] { return false; });
  }
}

Status ControlChannel::leave(const std::function<void(const Error&)>& say) {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  if (rank_ == 0) {
    tell_left(0);
  } else if (!failed()) {
    peers_[0].link->post(FrameKind::kBye, to_bytes(own_whereabouts()));
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return failed() || all_gone(); });
  const std::optional<Error> failure = this->failure();
  if (rank_ == 0) {
    lock.unlock();
    if (failure) {
      say(*failure);
      tell_failure(*failure);  // the watching thread may not have come to it
    }
    for (const Peer& peer : peers_) {
      if (peer.link) peer.link->post(FrameKind::kBye, "");
    }
    wait_until_sent(kGrace);
    lock.lock();
  }
  if (!failure) return Ok{};
  // Rank 0 ends the run, so that its message is out before a launcher sees a process end.
  changed_.wait_for(lock, std::chrono::duration<double>(kGrace), [this] { return all_gone(); });
  return *failure;
}

}  // namespace autopar
