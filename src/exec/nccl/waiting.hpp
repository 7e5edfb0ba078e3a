// Waiting that ends: when it is done, on an error, after a time-out, or when someone says stop.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "autopar/support.hpp"

namespace autopar {

// Why everything must end: set once, from any thread, or because of what is known of other ranks.
class Stop {
 public:
  explicit Stop(std::function<std::optional<std::string>()> failure_elsewhere)
      : failure_elsewhere_(std::move(failure_elsewhere)) {}
  void set(const std::string& reason);
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  // Also asks for failures elsewhere.
  bool is_set_anywhere();
  std::string reason() const;

 private:
  std::function<std::optional<std::string>()> failure_elsewhere_;
  std::atomic<bool> set_ = false;
  mutable std::mutex mutex_;
  std::string reason_;
};

enum class Waited { kDone, kTimeout, kStopped };

// Asks `ready` again and again, first without a pause, then with short ones, until it says true.
Result<Waited> wait_until(const std::function<Result<bool>()>& ready, Seconds timeout, Stop& stop);

}  // namespace autopar
