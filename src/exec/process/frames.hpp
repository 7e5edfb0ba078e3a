// What goes over a connection between two processes of a run: frames, each a kind, a length and so
// many bytes.
//
//   FrameReader reader(kMostFrameBytes);
//   reader.add(bytes);                                // as they come, in any pieces
//   while (... frame = reader.next(); frame && *frame) take(**frame);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "autopar/support.hpp"

namespace autopar {

enum class FrameKind : std::uint8_t {
  // Before a process is let in, see handshake.hpp.
  kHello,
  kChallenge,
  kProof,
  kWelcome,
  kRefusal,
  // A message of the bus: any number of pieces and a last one.
  kPiece,
  kLastPiece,
  kFailure,
  kBye,    // the rank has come to leave()
  kLeft,   // another rank has
  kAsk,    // a rank waits and asks rank 0 for whom
  kWhere,  // rank 0 asks where a rank is
  kHere,   // the answer
  kAlive,  // says nothing, so that the other end knows that this one runs
};

struct Frame {
  FrameKind kind = FrameKind::kAlive;
  std::string payload;
};

// No frame is longer. Messages are cut into pieces, so that this bounds what a rank says of itself.
constexpr std::uint32_t kMostFrameBytes = 64 << 20;
constexpr std::size_t kFrameHeaderBytes = 1 + sizeof(std::uint32_t);

// Precondition: the payload is no longer than kMostFrameBytes.
std::string frame_header(FrameKind kind, std::string_view payload);

class FrameReader {
 public:
  // Frames that say they are longer than `most` are an error as soon as they have said so.
  explicit FrameReader(std::uint32_t most) : most_(most) {}
  void allow(std::uint32_t most) { most_ = most; }
  void add(std::string_view bytes);
  // The next whole frame; nothing: bytes lack. Errors (kRuntime): what has come is no frame; there
  // is nothing to be read after it.
  Result<std::optional<Frame>> next();

 private:
  std::uint32_t most_;
  std::string bytes_;
  std::size_t begin_ = 0;  // of the next frame
};

}  // namespace autopar
