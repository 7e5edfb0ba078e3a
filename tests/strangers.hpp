// For tests: those who come to the port of rank 0, be they ranks or not.
#pragma once

#include <poll.h>

#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "exec/process/handshake.hpp"
#include "exec/process/wire.hpp"

namespace autopar::testing {

inline const std::string kSecret = "the run's secret";
inline constexpr Seconds kLong = 60;  // for what comes to an end well

inline std::string frame(FrameKind kind, const std::string& payload) {
  return frame_header(kind, payload) + payload;
}

// Catch2's own macros are for one thread at a time.
inline void must(bool holds) {
  if (!holds) throw std::logic_error("a stranger could not do its part");
}

template <class Work>
auto beside(Work work) {
  return std::async(std::launch::async, std::move(work));
}

// Somebody who has reached the port of rank 0.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(begin_connection(endpoints_of("127.0.0.1", port)[0])) {
    pollfd entry{socket_.descriptor(), POLLOUT, 0};
    must(poll(&entry, 1, 10000) == 1);
    must(connection_error(socket_) == 0);
  }
  explicit Stranger(Socket socket) : socket_(std::move(socket)) {}
  void say(const std::string& bytes) const { socket_.send_some(bytes); }
  // Until the next frame; nothing where rank 0 ends the connection.
  std::optional<Frame> listen() {
    while (true) {
      auto next = reader_.next();
      must(next.ok());
      if (*next) return **next;
      pollfd entry{socket_.descriptor(), POLLIN, 0};
      must(poll(&entry, 1, 20000) == 1);
      std::string bytes;
      if (socket_.receive_some(bytes, 4096) < 0) return std::nullopt;
      reader_.add(bytes);
    }
  }
  // As a process does that knows that secret.
  void join(const Hello& hello, const std::string& secret) {
    say(frame(FrameKind::kHello, to_bytes(hello)));
    const auto challenge = listen();
    must(challenge.has_value());
    WireReader reader(challenge->payload);
    const std::string number = reader.text();
    say(frame(FrameKind::kProof, proof_of_rank(secret, hello, number)));
  }
  int descriptor() const { return socket_.descriptor(); }

 private:
  Socket socket_;
  FrameReader reader_{kMostFrameBytes};
};

inline Hello hello_of_rank(int rank, int size) {
  return {size, rank, "process 0 on nowhere", random_bytes(16)};
}

}  // namespace autopar::testing
