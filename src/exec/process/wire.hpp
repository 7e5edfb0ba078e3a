// Numbers and texts as bytes between processes of one program on machines of one kind.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "autopar/support.hpp"

namespace autopar {

class WireWriter {
 public:
  template <class Number>
  void put(Number value) {
    static_assert(std::is_arithmetic_v<Number>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put<std::uint64_t>(text.size());
    bytes_.append(text);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads what a WireWriter wrote, in its order. Bytes of anything else do no harm: what lacks reads
// as zero or empty, and so does all that follows; finish() then is the error.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  template <class Number>
  Number number() {
    static_assert(std::is_arithmetic_v<Number>);
    if constexpr (std::is_same_v<Number, bool>) {
      return number<std::uint8_t>() != 0;
    } else {
      Number value{};
      const std::string_view bytes = next(sizeof value);
      if (bytes.size() == sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
      return value;
    }
  }
  std::string text() { return std::string(view()); }
  std::string_view view() { return next(number<std::uint64_t>()); }
  // How many entries follow, each of which has at least so many bytes.
  std::size_t count(std::size_t least_bytes) {
    const auto entries = number<std::uint64_t>();
    if (entries <= rest_.size() / std::max<std::size_t>(1, least_bytes)) return entries;
    fail();
    return 0;
  }
  bool failed() const { return failed_; }
  // Errors (kRuntime): something lacked, or is left over.
  Status finish() const {
    if (failed_) return runtime_error("a message between ranks ends too early");
    if (!rest_.empty()) return runtime_error("a message between ranks is too long");
    return Ok{};
  }

 private:
  std::string_view next(std::uint64_t size) {
    if (size > rest_.size()) {
      fail();
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  void fail() {
    failed_ = true;
    rest_ = {};
  }
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace autopar
