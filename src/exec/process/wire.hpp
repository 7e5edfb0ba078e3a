// Numbers and texts as bytes between processes of one program on machines of one kind.
#pragma once

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

// Precondition: reads what a WireWriter of the same program wrote, in its order.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  template <class Number>
  Number number() {
    Number value{};
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(view()); }
  std::string_view view() {
    const auto size = number<std::uint64_t>();
    return next(size);
  }

 private:
  std::string_view next(std::size_t size) {
    AUTOPAR_CHECK(size <= rest_.size(), "a message between ranks is too short");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
};

}  // namespace autopar
