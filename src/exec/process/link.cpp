#include "exec/process/link.hpp"

#include <algorithm>

namespace autopar {

namespace {

constexpr std::size_t kReadAtOnce = 256 << 10;
constexpr int kReads = 16;  // then it is another connection's turn
constexpr auto kLookForRoom = std::chrono::milliseconds(50);

}  // namespace

SteadyTime after(Seconds seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr Seconds kMost = 3e7;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(seconds, kMost)));
}

Link::Arrivals Link::receive() {
  Arrivals arrivals;
  for (int read = 0; read < kReads && !arrivals.ended && arrivals.problem.empty(); ++read) {
    std::string bytes;
    const std::int64_t got = socket_.receive_some(bytes, kReadAtOnce);
    arrivals.ended = got < 0;
    reader_.add(bytes);
    while (true) {
      auto frame = reader_.next();
      if (!frame) arrivals.problem = frame.error().message;
      if (!frame || !*frame) break;
      arrivals.frames.push_back(std::move(**frame));
    }
    if (got < static_cast<std::int64_t>(kReadAtOnce)) break;
  }
  return arrivals;
}

void Link::send_more() {
  while (!is_gone_ && unsent() > 0) {
    const std::int64_t put = socket_.send_some(std::string_view(unsent_).substr(sent_));
    if (put == 0) return;
    if (put < 0) is_gone_ = true;
    if (put > 0) sent_ += static_cast<std::size_t>(put);
  }
  unsent_.clear();
  sent_ = 0;
}

void Link::send_unsent() {
  const std::lock_guard lock(mutex_);
  send_more();
  changed_.notify_all();
}

bool Link::has_unsent() const {
  const std::lock_guard lock(mutex_);
  return unsent() > 0;
}

void Link::post(FrameKind kind, std::string_view payload) {
  const std::string header = frame_header(kind, payload);
  {
    const std::lock_guard lock(mutex_);
    if (is_gone_) return;
    if (sent_ >= unsent()) {  // so that each byte is moved about once
      unsent_.erase(0, sent_);
      sent_ = 0;
    }
    unsent_ += header;
    unsent_ += payload;
    send_more();
    if (unsent() == 0) return;
  }
  wake_();
}

bool Link::wait_until_sent(std::size_t most, SteadyTime until,
                           const std::function<bool()>& give_up) const {
  std::unique_lock lock(mutex_);
  while (!is_gone_ && unsent() > most) {
    if (give_up() || std::chrono::steady_clock::now() >= until) return false;
    changed_.wait_for(lock, kLookForRoom);
  }
  return true;
}

}  // namespace autopar
