// Frames of the connections between the ranks and the referee: a length and that many bytes.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace stand_in {

// What a rank asks of the referee.
enum class Request : std::uint8_t { kJoin, kBatch, kLeave, kAbort };
enum class Answer : std::uint8_t { kDone, kError };

enum class OpKind : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kAllToAll,
  kSplit,
  kSend,
  kRecv,
};

// One call. Of a Split `peer` is the color and `count` the key.
struct Op {
  OpKind kind = OpKind::kAllReduce;
  std::uint8_t type = 0;    // ncclDataType_t
  std::uint8_t reduce = 0;  // ncclRedOp_t
  std::int32_t peer = 0;    // or root
  std::uint64_t count = 0;
  std::string payload;
};

class Writer {
 public:
  template <class T>
  Writer& put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& put_text(const std::string& text) {
    put<std::uint64_t>(text.size());
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    T value{};
    if (at_ + sizeof value <= bytes_.size()) std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string text() {
    const auto size = take<std::uint64_t>();
    std::string result = at_ <= bytes_.size() ? bytes_.substr(at_, size) : "";
    at_ += size;
    return result;
  }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

// False: the other end is gone.
inline bool send_frame(int socket, const std::string& body) {
  std::string bytes = Writer().put<std::uint64_t>(body.size()).bytes() + body;
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

// Collects what arrives until frames are complete.
class Inbox {
 public:
  // Reads what is there; false: the other end is gone.
  bool read(int socket) {
    char buffer[1 << 16];
    const ssize_t n = ::recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) return false;
    bytes_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }
  bool take(std::string& body) {
    std::uint64_t size = 0;
    if (bytes_.size() < sizeof size) return false;
    std::memcpy(&size, bytes_.data(), sizeof size);
    if (bytes_.size() - sizeof size < size) return false;
    body = bytes_.substr(sizeof size, size);
    bytes_.erase(0, sizeof size + size);
    return true;
  }

 private:
  std::string bytes_;
};

}  // namespace stand_in
