#include "exec/process/frames.hpp"

#include <cstring>

namespace autopar {

std::string frame_header(FrameKind kind, std::string_view payload) {
  AUTOPAR_CHECK(payload.size() <= kMostFrameBytes,
                "a frame of " + std::to_string(payload.size()) + " bytes");
  const auto size = static_cast<std::uint32_t>(payload.size());
  std::string header(kFrameHeaderBytes, '\0');
  header[0] = static_cast<char>(kind);
  std::memcpy(header.data() + 1, &size, sizeof size);
  return header;
}

void FrameReader::add(std::string_view bytes) {
  if (begin_ > 0) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
  bytes_.append(bytes);
}

Result<std::optional<Frame>> FrameReader::next() {
  if (bytes_.size() - begin_ < kFrameHeaderBytes) return std::optional<Frame>();
  const auto kind = static_cast<std::uint8_t>(bytes_[begin_]);
  std::uint32_t size = 0;
  std::memcpy(&size, bytes_.data() + begin_ + 1, sizeof size);
  if (kind > static_cast<std::uint8_t>(FrameKind::kAlive)) {
    return runtime_error("there is no frame of kind " + std::to_string(kind));
  }
  if (size > most_) {
    return runtime_error("a frame says that it has " + std::to_string(size) +
                         " bytes; no more than " + std::to_string(most_) + " are allowed");
  }
  if (bytes_.size() - begin_ < kFrameHeaderBytes + size) return std::optional<Frame>();
  Frame frame{static_cast<FrameKind>(kind), bytes_.substr(begin_ + kFrameHeaderBytes, size)};
  begin_ += kFrameHeaderBytes + size;
  return std::optional<Frame>(std::move(frame));
}

}  // namespace autopar
