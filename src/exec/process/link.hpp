// One end of a connection between two processes of a run, over which frames go. One thread
// receives; any thread sends. Nothing here waits for the other end but wait_until_sent().
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "exec/process/frames.hpp"
#include "exec/process/sockets.hpp"

namespace autopar {

using SteadyTime = std::chrono::steady_clock::time_point;
// From now on; a year at most.
SteadyTime after(Seconds seconds);

class Link {
 public:
  // `received`: bytes that came with the last words of the handshake. `wake`: makes the receiving
  // thread look at has_unsent() again.
  Link(Socket socket, FrameReader reader, std::function<void()> wake)
      : socket_(std::move(socket)), reader_(std::move(reader)), wake_(std::move(wake)) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int descriptor() const { return socket_.descriptor(); }

  // What has come, for the receiving thread.
  struct Arrivals {
    std::vector<Frame> frames;
    bool ended = false;   // the other end has; nothing comes after these frames
    std::string problem;  // what has come after these frames is none; empty: all is well
  };
  Arrivals receive();
  // Of the receiving thread, where the socket is writable again.
  void send_unsent();
  bool has_unsent() const;

  // What the system does not take at once is kept. To an end that has gone nothing is sent.
  void post(FrameKind kind, std::string_view payload);
  // Until at most so many bytes are unsent; false: not until then, or `give_up` says so. The
  // receiving thread sends meanwhile.
  bool wait_until_sent(std::size_t most, SteadyTime until,
                       const std::function<bool()>& give_up) const;

 private:
  std::size_t unsent() const { return unsent_.size() - sent_; }
  void send_more();  // with the lock

  Socket socket_;
  FrameReader reader_;  // of the receiving thread
  std::function<void()> wake_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::string unsent_;  // from sent_ on
  std::size_t sent_ = 0;
  bool is_gone_ = false;  // the other end
};

}  // namespace autopar
