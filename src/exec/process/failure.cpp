#include "exec/process/failure.hpp"

#include "exec/process/wire.hpp"

namespace autopar {

namespace {

constexpr int kMostErrorCode = 6;

ErrorCode error_code_of(int code) {
  return code >= 1 && code <= kMostErrorCode ? static_cast<ErrorCode>(code) : ErrorCode::kRuntime;
}

}  // namespace

std::string to_bytes(const Error& failure) {
  WireWriter writer;
  writer.put<std::int32_t>(static_cast<int>(failure.code));
  writer.put_text(failure.message);
  return writer.take();
}

Status read_failure(std::string_view bytes, Error& failure) {
  WireReader reader(bytes);
  failure.code = error_code_of(reader.number<std::int32_t>());
  failure.message = reader.text();
  return reader.finish();
}

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
