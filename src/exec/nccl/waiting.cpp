#include "exec/nccl/waiting.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

// Collectives of small tensors take some ten microseconds: asking all the time finds their end
// soonest. Who waits longer should leave the core to the ranks that still compute.
constexpr auto kWithoutPause = std::chrono::microseconds(200);
constexpr auto kPause = std::chrono::microseconds(50);

}  // namespace

void Stop::set(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (is_set()) return;
  reason_ = reason;
  set_.store(true, std::memory_order_release);
}

bool Stop::is_set_anywhere() {
  if (is_set()) return true;
  if (!failure_elsewhere_) return false;
  const auto failure = failure_elsewhere_();
  if (!failure) return false;
  set(*failure);
  return true;
}

std::string Stop::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

Result<Waited> wait_until(const std::function<Result<bool>()>& ready, Seconds timeout, Stop& stop) {
  const Clock::time_point begin = Clock::now();
  const auto limit = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(timeout, 1e8)));
  while (true) {
    AUTOPAR_TRY(done, ready());
    if (done) return Waited::kDone;
    if (stop.is_set_anywhere()) return Waited::kStopped;
    const auto waited = Clock::now() - begin;
    if (waited > limit) return Waited::kTimeout;
    if (waited > kWithoutPause) {
      std::this_thread::sleep_for(kPause);
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace autopar
