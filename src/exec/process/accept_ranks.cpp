// Rank 0's side of the handshake.
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "exec/process/failure.hpp"
#include "exec/process/handshake.hpp"
#include "exec/process/wire.hpp"
#include "exec/whereabouts.hpp"

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

constexpr Seconds kPatience = 5;            // with a visitor, from its coming to its last word
constexpr std::size_t kMostVisitors = 256;  // at once: the one that came first goes for another
constexpr int kMostAcceptedAtOnce = 64;
constexpr int kSpareDescriptors = 512;  // of this process, beside one per rank
constexpr int kLongestSleep = 1000;     // milliseconds

// Somebody who has connected and is not let in yet.
struct Visitor {
  Socket socket;
  SteadyTime deadline;
  FrameReader reader{kMostHandshakeBytes};
  std::optional<Hello> hello;
  std::string number;  // rank 0's, for this visitor
};

bool same(const std::string& a, const std::string& b) {  // in a time that tells nothing
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

class Door {
 public:
  Door(const Listener& listener, int size, const std::string& secret)
      : listener_(listener), secret_(secret), joined_(static_cast<std::size_t>(size)) {}

  Result<std::vector<JoinedRank>> wait_for_all(Seconds timeout) {
    const SteadyTime deadline = after(timeout);
    while (come_ + 1 < joined_.size()) {
      if (Clock::now() >= deadline) return not_all_came();
      AUTOPAR_RETURN_IF_ERROR(wait(deadline));
      if (is_knocking_) AUTOPAR_RETURN_IF_ERROR(let_visitors_come());
      for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
        AUTOPAR_TRY(stays, hear(*visitor));
        if (!stays) is_full_ = false;
        visitor = stays ? std::next(visitor) : visitors_.erase(visitor);
      }
    }
    return std::move(joined_);
  }

  // Those who have come, so that they do not take rank 0 for one that crashed.
  void tell(const Error& failure) const {
    const std::string payload = to_bytes(failure);
    for (const JoinedRank& rank : joined_) {
      if (!rank.socket.is_open()) continue;
      rank.socket.send_some(frame_header(FrameKind::kFailure, payload) + payload);
    }
  }

 private:
  std::size_t size() const { return joined_.size(); }
  std::string name_of(std::size_t rank) const {
    return "rank " + std::to_string(rank) + " (" + joined_[rank].process + ")";
  }

  // Until somebody knocks or says something, or a time is over. Errors: a rank that has joined
  // ends.
  Status wait(SteadyTime deadline) {
    std::vector<pollfd> entries;
    entries.push_back({is_full_ ? -1 : listener_.descriptor(), POLLIN, 0});
    std::vector<std::size_t> ranks;
    for (std::size_t r = 1; r < size(); ++r) {
      if (!joined_[r].socket.is_open()) continue;
      entries.push_back({joined_[r].socket.descriptor(), POLLRDHUP, 0});
      ranks.push_back(r);
    }
    for (const Visitor& visitor : visitors_) {
      entries.push_back({visitor.socket.descriptor(), POLLIN, 0});
      deadline = std::min(deadline, visitor.deadline);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int sleep = static_cast<int>(std::clamp<std::int64_t>(left, 0, kLongestSleep));
    if (poll(entries.data(), entries.size(), sleep) < 0 && errno != EINTR) {
      return runtime_error(std::string("rank 0 cannot wait for the others: ") +
                           std::strerror(errno));
    }
    is_knocking_ = entries[0].revents != 0;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (entries[i + 1].revents == 0) continue;
      return runtime_error(name_of(ranks[i]) + " ended while others were joining");
    }
    return Ok{};
  }

  Status let_visitors_come() {
    for (int n = 0; n < kMostAcceptedAtOnce; ++n) {
      Socket socket = listener_.accept();
      if (socket.is_open()) {
        if (visitors_.size() == kMostVisitors) visitors_.pop_front();
        visitors_.emplace_back();
        visitors_.back().socket = std::move(socket);
        visitors_.back().deadline = after(kPatience);
        continue;
      }
      const bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!lacks) return Ok{};
      is_full_ = true;  // until a visitor has gone
      if (visitors_.empty()) return too_few_descriptors();
      return Ok{};
    }
    return Ok{};
  }

  Error too_few_descriptors() const {
    const std::string why = std::strerror(errno);
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return runtime_error("rank 0 cannot take more connections (" + why +
                         "): " + std::to_string(come_) + " of " + std::to_string(size() - 1) +
                         " other ranks have come; allow more open files on its machine (ulimit "
                         "-n, which is " +
                         std::to_string(limit.rlim_cur) + ")");
  }

  // Whether the visitor stays one. Errors: what ends the run.
  Result<bool> hear(Visitor& visitor) {
    std::string bytes;
    const bool ended = visitor.socket.receive_some(bytes, kMostHandshakeBytes) < 0;
    visitor.reader.add(bytes);
    while (true) {
      auto frame = visitor.reader.next();
      if (!frame) return false;
      if (!*frame) break;
      AUTOPAR_TRY(stays, answer(visitor, **frame));
      if (!stays) return false;
    }
    if (ended && visitor.hello) {
      note(*visitor.hello, "ended the connection, which it does where it has another secret");
    }
    return !ended && Clock::now() < visitor.deadline;
  }

  Result<bool> answer(Visitor& visitor, const Frame& frame) {
    if (frame.kind == FrameKind::kHello && !visitor.hello) return greet(visitor, frame.payload);
    if (frame.kind == FrameKind::kProof && visitor.hello) return let_in(visitor, frame.payload);
    return false;
  }

  bool greet(Visitor& visitor, const std::string& payload) {
    auto hello = hello_of(payload);
    if (!hello) return refuse(visitor, hello.error().message);
    if (hello->size != static_cast<int>(size()) || hello->rank < 1 || hello->rank >= hello->size) {
      const std::string why = "rank 0 waits for ranks 1 to " + std::to_string(size() - 1) + " of " +
                              std::to_string(size()) + ", and this one says that it is rank " +
                              std::to_string(hello->rank) + " of " + std::to_string(hello->size);
      note(*hello, "was turned away: " + why);
      return refuse(visitor, why);
    }
    visitor.number = random_bytes(hello->number.size());
    WireWriter challenge;
    challenge.put_text(visitor.number);
    challenge.put_text(proof_of_rank_0(secret_, *hello, visitor.number));
    visitor.hello = std::move(*hello);
    return say(visitor, FrameKind::kChallenge, challenge.take());
  }

  Result<bool> let_in(Visitor& visitor, const std::string& payload) {
    const Hello& hello = *visitor.hello;
    if (!same(payload, proof_of_rank(secret_, hello, visitor.number))) {
      note(hello, "was turned away: it has another secret");
      return refuse(visitor, "this run has another secret");
    }
    JoinedRank& rank = joined_[static_cast<std::size_t>(hello.rank)];
    if (rank.socket.is_open()) {
      return runtime_error("two processes say that they are rank " + std::to_string(hello.rank) +
                           " of " + std::to_string(size()) + ": " + rank.process + " and " +
                           hello.process);
    }
    if (!say(visitor, FrameKind::kWelcome, "")) return false;
    visitor.reader.allow(kMostFrameBytes);
    rank.socket = std::move(visitor.socket);
    rank.reader = std::move(visitor.reader);
    rank.process = hello.process;
    ++come_;
    return false;
  }

  static bool say(const Visitor& visitor, FrameKind kind, const std::string& payload) {
    const std::string bytes = frame_header(kind, payload) + payload;
    return visitor.socket.send_some(bytes) == static_cast<std::int64_t>(bytes.size());
  }
  static bool refuse(const Visitor& visitor, const std::string& why) {
    say(visitor, FrameKind::kRefusal, why);
    return false;
  }
  void note(const Hello& hello, const std::string& what) {
    noted_ = "; " + hello.process + ", which says that it is rank " + std::to_string(hello.rank) +
             ", " + what;
  }

  Error not_all_came() const {
    std::vector<std::int64_t> missing;
    for (std::size_t r = 1; r < size(); ++r) {
      if (!joined_[r].socket.is_open()) missing.push_back(static_cast<std::int64_t>(r));
    }
    return runtime_error(list_ranks(missing) + " of " + std::to_string(size()) +
                         " did not come to rank 0 on port " + std::to_string(listener_.port()) +
                         " in time" + noted_);
  }

  const Listener& listener_;
  const std::string& secret_;
  std::vector<JoinedRank> joined_;  // by rank
  std::size_t come_ = 0;
  std::list<Visitor> visitors_;  // in the order of their coming
  bool is_knocking_ = false;
  bool is_full_ = false;  // no descriptor is left for another visitor
  std::string noted_;     // of the last one that was turned away; empty: none was
};

}  // namespace

Result<std::vector<JoinedRank>> accept_ranks(const Listener& listener, int size,
                                             const std::string& secret, Seconds timeout) {
  allow_descriptors(static_cast<std::size_t>(size) + kSpareDescriptors);
  Door door(listener, size, secret);
  auto all = door.wait_for_all(timeout);
  if (!all) door.tell(all.error());
  return all;
}

}  // namespace autopar
