// The first failure that a rank learns of, and what is to be done at once when it does.
//
//   const auto action = failure.on_first([&] { options.SetTerminate(); });
//       // until the scope ends
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "autopar/support.hpp"

namespace autopar {

// What a frame of the kind kFailure holds.
std::string to_bytes(const Error& failure);
Status read_failure(std::string_view bytes, Error& failure);

// One action that another thread may run at any time. Whoever replaces it waits until it has ended,
// so that what it uses may go then.
class ActionSlot {
 public:
  void set(std::function<void()> action) {
    const std::lock_guard lock(mutex_);
    action_ = std::move(action);
  }
  // Once at most.
  void run() {
    const std::lock_guard lock(mutex_);
    if (const auto action = std::exchange(action_, {})) action();
  }

 private:
  std::mutex mutex_;
  std::function<void()> action_;
};

class FirstFailure {
 public:
  // The action is there for as long as this object lives.
  class Registration {
   public:
    explicit Registration(FirstFailure& failure) : failure_(&failure) {}
    ~Registration() { failure_->action_.set({}); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    FirstFailure* failure_;
  };

  // False: it is not the first. Runs the action.
  bool take(const Error& failure);
  std::optional<Error> known() const;
  bool has_happened() const { return has_happened_; }
  // At once where a failure is known already, else by the thread that takes the first.
  [[nodiscard]] Registration on_first(std::function<void()> action);

 private:
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
  std::atomic<bool> has_happened_ = false;
  ActionSlot action_;
};

}  // namespace autopar
