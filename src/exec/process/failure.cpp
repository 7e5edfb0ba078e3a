#include "exec/process/failure.hpp"

namespace autopar {

bool FirstFailure::take(const Error& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return false;
    failure_ = failure;
    has_happened_ = true;
  }
  action_.run();
  return true;
}

std::optional<Error> FirstFailure::known() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

FirstFailure::Registration FirstFailure::on_first(std::function<void()> action) {
  action_.set(std::move(action));
  if (has_happened_) action_.run();
  return Registration(*this);
}

}  // namespace autopar
