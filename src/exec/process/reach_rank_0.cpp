// The other ranks' side of the handshake.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "exec/machine.hpp"
#include "exec/process/handshake.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAgain = std::chrono::milliseconds(50);  // where rank 0 is not there yet
constexpr auto kNamesAfter = std::chrono::seconds(1);   // where there are numbers too
constexpr std::size_t kMostShown = 200;                 // of what a stranger says
constexpr const char* kAnotherProgram =
    "what listens there is not rank 0 of this run: another program, another run, or one with "
    "another secret";

// What is not a letter that can be shown is left out.
std::string shown(const std::string& text) {
  std::string kept;
  for (char c : text.substr(0, kMostShown)) {
    if (c >= ' ' && c <= '~') kept += c;
  }
  return kept;
}

// One address that is tried, again and again.
struct Attempt {
  Endpoint endpoint;
  Socket socket;
  FrameReader reader{kMostHandshakeBytes};
  bool is_connected = false;
  bool has_proven = false;  // both ends have
  Hello hello;
  SteadyTime again;     // not before, where the socket is not open
  std::string problem;  // of the last time
};

void give_up(Attempt& attempt, const std::string& problem) {
  attempt.socket = Socket();
  attempt.is_connected = attempt.has_proven = false;
  attempt.problem = problem;
  attempt.again = Clock::now() + kAgain;
}

class Rank0Caller {
 public:
  Rank0Caller(const Rank0Address& address, int rank, int size)
      : address_(address), rank_(rank), size_(size) {}

  Result<JoinedRank> call(Seconds timeout) {
    const SteadyTime deadline = after(timeout);
    look_up(true);
    SteadyTime names = attempts_.empty() ? Clock::now() : Clock::now() + kNamesAfter;
    while (true) {
      if (!has_looked_up_ && Clock::now() >= names) {
        look_up(false);
        names = Clock::now() + kNamesAfter;
      }
      begin_where_due();
      wait();
      for (Attempt& attempt : attempts_) {
        if (attempt.socket.is_open() && hear(attempt)) {
          attempt.reader.allow(kMostFrameBytes);
          return JoinedRank{std::move(attempt.socket), std::move(attempt.reader), ""};
        }
      }
      if (Clock::now() >= deadline) return unreachable();
    }
  }

 private:
  // Numbers at once, names later: a name service may take long.
  void look_up(bool numbers) {
    for (const std::string& host : address_.hosts) {
      for (Endpoint& endpoint : endpoints_of(host, address_.port, numbers)) {
        const auto known = std::find_if(
            attempts_.begin(), attempts_.end(),
            [&](const Attempt& attempt) { return attempt.endpoint.address == endpoint.address; });
        if (known != attempts_.end()) continue;
        attempts_.emplace_back();
        attempts_.back().endpoint = std::move(endpoint);
      }
    }
    has_looked_up_ = !numbers && !attempts_.empty();
  }

  bool one_has_proven() const {
    return std::any_of(attempts_.begin(), attempts_.end(),
                       [](const Attempt& attempt) { return attempt.has_proven; });
  }

  void begin_where_due() {
    if (one_has_proven()) return;
    for (Attempt& attempt : attempts_) {
      if (attempt.socket.is_open() || Clock::now() < attempt.again) continue;
      attempt.reader = FrameReader(kMostHandshakeBytes);
      attempt.socket = begin_connection(attempt.endpoint);
      if (!attempt.socket.is_open()) give_up(attempt, std::strerror(errno));
    }
  }

  void wait() const {
    std::vector<pollfd> entries;
    for (const Attempt& attempt : attempts_) {
      const short events = attempt.is_connected ? POLLIN : POLLOUT;
      entries.push_back({attempt.socket.descriptor(), events, 0});
    }
    poll(entries.data(), entries.size(), static_cast<int>(kAgain.count()));
  }

  bool say(Attempt& attempt, FrameKind kind, const std::string& payload) {
    const std::string bytes = frame_header(kind, payload) + payload;
    if (attempt.socket.send_some(bytes) == static_cast<std::int64_t>(bytes.size())) return true;
    give_up(attempt, kAnotherProgram);
    return false;
  }

  void greet(Attempt& attempt) {
    pollfd entry{attempt.socket.descriptor(), POLLOUT, 0};
    if (poll(&entry, 1, 0) <= 0) return;
    if (const int error = connection_error(attempt.socket); error != 0) {
      return give_up(attempt, std::strerror(error));
    }
    attempt.is_connected = true;
    attempt.hello = {size_, rank_, "process " + std::to_string(getpid()) + " on " + machine_name(),
                     random_bytes(16)};
    say(attempt, FrameKind::kHello, to_bytes(attempt.hello));
  }

  // Whether this rank is let in.
  bool hear(Attempt& attempt) {
    if (!attempt.is_connected) {
      greet(attempt);
      return false;
    }
    std::string bytes;
    const bool ended = attempt.socket.receive_some(bytes, kMostHeard) < 0;
    attempt.reader.add(bytes);
    while (attempt.socket.is_open()) {
      const auto frame = attempt.reader.next();
      if (!frame) give_up(attempt, kAnotherProgram);
      if (!frame || !*frame) break;
      if ((*frame)->kind == FrameKind::kWelcome && attempt.has_proven) return true;
      answer(attempt, **frame);
    }
    if (ended && attempt.socket.is_open()) give_up(attempt, kAnotherProgram);
    return false;
  }

  void answer(Attempt& attempt, const Frame& frame) {
    if (frame.kind == FrameKind::kRefusal) {
      return give_up(attempt, "rank 0 says: " + shown(frame.payload));
    }
    if (frame.kind != FrameKind::kChallenge || attempt.has_proven) {
      return give_up(attempt, kAnotherProgram);
    }
    WireReader reader(frame.payload);
    const std::string number = reader.text();
    const std::string proof = reader.text();
    if (!reader.finish() || proof != proof_of_rank_0(address_.secret, attempt.hello, number)) {
      return give_up(attempt, kAnotherProgram);
    }
    if (one_has_proven()) return give_up(attempt, "");  // rank 0 at another of its addresses
    attempt.has_proven =
        say(attempt, FrameKind::kProof, proof_of_rank(address_.secret, attempt.hello, number));
  }

  Error unreachable() const {
    std::set<std::string> told;
    std::string text;
    for (const Attempt& attempt : attempts_) {
      const std::string why = attempt.problem.empty() ? "no answer" : attempt.problem;
      const std::string one = attempt.endpoint.name + " (" + why + ")";
      if (told.insert(one).second) text += (text.empty() ? "" : ", ") + one;
    }
    for (const std::string& host :
         attempts_.empty() ? address_.hosts : std::vector<std::string>()) {
      text += (text.empty() ? "" : ", ") + host + " (there is no such host)";
    }
    return runtime_error("rank " + std::to_string(rank_) + " cannot reach rank 0 on port " +
                         std::to_string(address_.port) + " of " + text);
  }

  static constexpr std::size_t kMostHeard = 4096;
  const Rank0Address& address_;
  int rank_;
  int size_;
  bool has_looked_up_ = false;  // names too
  std::vector<Attempt> attempts_;
};

}  // namespace

Result<JoinedRank> reach_rank_0(const Rank0Address& address, int rank, int size, Seconds timeout) {
  Rank0Caller caller(address, rank, size);
  return caller.call(timeout);
}

}  // namespace autopar
