// How processes come to rank 0 and what strangers at its port can do: nothing, but take a little
// time.
#include "exec/process/handshake.hpp"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exec/process/control.hpp"
#include "exec/process/joined.hpp"
#include "exec/process/wire.hpp"
#include "folder.hpp"

using namespace autopar;
using autopar::testing::Folder;

namespace {

const std::string kSecret = "the run's secret";
constexpr Seconds kLong = 60;  // for what comes to an end well

std::string frame(FrameKind kind, const std::string& payload) {
  return frame_header(kind, payload) + payload;
}

// Catch2's own macros are for one thread at a time.
void must(bool holds) {
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

Hello hello_of_rank(int rank, int size) {
  return {size, rank, "process 0 on nowhere", random_bytes(16)};
}

// What rank 0 of `size` gets while `visit` is done by somebody else, after which all other ranks
// come.
Result<std::vector<JoinedRank>> joined_after(int size, const std::function<void(int port)>& visit) {
  const Listener listener = Listener::open(0, true).value();
  auto others = beside([&] {
    visit(listener.port());
    const Rank0Address address{{"127.0.0.1"}, listener.port(), kSecret};
    std::vector<std::future<Result<JoinedRank>>> ranks;
    for (int rank = 1; rank < size; ++rank) {
      ranks.push_back(beside([&, rank] { return reach_rank_0(address, rank, size, kLong); }));
    }
    std::vector<Result<JoinedRank>> reached;  // none ends while others join
    for (auto& rank : ranks) reached.push_back(rank.get());
    for (const auto& rank : reached) must(rank.ok());
  });
  auto joined = accept_ranks(listener, size, kSecret, kLong);
  others.get();
  return joined;
}

}  // namespace

TEST_CASE("strangers are shown out, and ranks come all the same", "[process]") {
  const int size = 3;
  std::string changed = to_bytes(hello_of_rank(1, size));
  changed[8 + std::strlen("autopar ranks")] ^= 1;  // the version
  const std::vector<std::string> said = {
      "GET / HTTP/1.1\r\n\r\n",
      std::string(5000, '\xff'),
      frame(FrameKind::kHello, ""),
      frame(FrameKind::kHello, "autopar "),
      frame(FrameKind::kHello, to_bytes(hello_of_rank(1, size)).substr(0, 40)),
      frame(FrameKind::kHello, to_bytes(hello_of_rank(1, size)) + "more"),
      frame(FrameKind::kHello, to_bytes(hello_of_rank(0, size))),
      frame(FrameKind::kHello, to_bytes(hello_of_rank(-1, size))),
      frame(FrameKind::kHello, to_bytes(hello_of_rank(size, size))),
      frame(FrameKind::kHello, to_bytes(hello_of_rank(1, size + 1))),
      frame(FrameKind::kHello, changed),
      frame(FrameKind::kHello, std::string(2000, 'x')),
      frame(FrameKind::kProof, std::string(32, 'x')),
      frame(FrameKind::kFailure, "rank 1 broke"),
      std::string("\x00\xff\xff\xff\xff", 5),  // a hello of 4 GiB
      std::string("\x77\x01\x00\x00\x00x", 6),
      // What version 1 of the protocol took for a hello that is the cookie alone.
      std::string("\x00\x08\x00\x00\x00\x00\x00\x00\x00", 9) + "autopar ",
  };
  for (const std::string& bytes : said) {
    CAPTURE(bytes);
    std::optional<Frame> answer;
    const auto joined = joined_after(size, [&](int port) {
      Stranger stranger(port);
      stranger.say(bytes);
      answer = stranger.listen();
    });
    // Refused with a reason, or without a word.
    if (answer) CHECK(answer->kind == FrameKind::kRefusal);
    REQUIRE(joined);
    for (std::size_t rank = 1; rank < 3; ++rank) CHECK((*joined)[rank].socket.is_open());
  }
}

TEST_CASE("nobody is let in without the secret, and nobody learns it", "[process]") {
  std::optional<Frame> answer;
  const auto joined = joined_after(2, [&](int port) {
    Stranger stranger(port);
    stranger.join(hello_of_rank(1, 2), "another secret");
    answer = stranger.listen();
  });
  CHECK(joined.ok());
  REQUIRE(answer);
  CHECK(answer->kind == FrameKind::kRefusal);

  // A rank that comes to a rank 0 of another run ends the connection before it proves anything.
  const Listener listener = Listener::open(0, true).value();
  auto rank = beside([&] {
    return reach_rank_0({{"127.0.0.1"}, listener.port(), "another"}, 1, 2, 0.5);
  });
  const auto none = accept_ranks(listener, 2, kSecret, 1.5);
  const auto reached = rank.get();
  REQUIRE(!reached);
  CHECK(reached.error().message.find("another secret") != std::string::npos);
  REQUIRE(!none);
  CHECK(none.error().message.find("rank 1 of 2 did not come") != std::string::npos);
  CHECK(none.error().message.find("it has another secret") != std::string::npos);
}

TEST_CASE("those who say little or nothing hold nobody up", "[process]") {
  std::vector<std::unique_ptr<Stranger>> silent;
  std::atomic<bool> over = false;
  std::future<void> drips;
  const auto joined = joined_after(3, [&](int port) {
    for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Stranger>(port));
    silent.front()->say(frame(FrameKind::kHello, to_bytes(hello_of_rank(1, 3))));
    // More than are heard at a time: the first ones go.
    for (int i = 0; i < 300; ++i) Stranger(port).say("\x00");
    drips = beside([&over, &stranger = *silent.back()] {
      const std::string bytes = frame(FrameKind::kHello, to_bytes(hello_of_rank(1, 3)));
      for (std::size_t i = 0; i < bytes.size() && !over; ++i) {
        stranger.say(bytes.substr(i, 1));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  });
  over = true;
  drips.get();
  CHECK(joined.ok());

  // One who drips on is shown out all the same.
  const Listener listener = Listener::open(0, true).value();
  auto accepts = beside([&] { return accept_ranks(listener, 2, kSecret, kLong).ok(); });
  Stranger stranger(listener.port());
  bool shown_out = false;
  for (int i = 0; i < 2000 && !shown_out; ++i) {
    stranger.say(i == 0 ? std::string("\x00\xff\x03\x00\x00", 5) : "x");
    pollfd entry{stranger.descriptor(), POLLIN, 0};
    shown_out = poll(&entry, 1, 20) == 1;
  }
  CHECK(shown_out);
  CHECK(reach_rank_0({{"127.0.0.1"}, listener.port(), kSecret}, 1, 2, kLong).ok());
  CHECK(accepts.get());
}

TEST_CASE("a rank that is there already ends the joining", "[process]") {
  const Listener listener = Listener::open(0, true).value();
  std::vector<std::future<void>> ranks;
  for (int i = 0; i < 2; ++i) {
    ranks.push_back(beside([&] {
      Stranger rank(listener.port());
      rank.join(hello_of_rank(1, 3), kSecret);
      while (rank.listen()) {
      }
    }));
  }
  {
    const auto joined = accept_ranks(listener, 3, kSecret, kLong);
    REQUIRE(!joined);
    CHECK(joined.error().message.find("two processes say that they are rank 1 of 3") !=
          std::string::npos);
  }
  for (auto& rank : ranks) rank.get();
}

TEST_CASE("a rank that ends while others join is missed at once", "[process]") {
  const Listener listener = Listener::open(0, true).value();
  auto rank = beside([&] {
    return reach_rank_0({{"127.0.0.1"}, listener.port(), kSecret}, 1, 3, kLong).ok();
  });
  const auto joined = accept_ranks(listener, 3, kSecret, kLong);
  CHECK(rank.get());
  REQUIRE(!joined);
  CHECK(joined.error().message.find("rank 1 (process ") == 0);
  CHECK(joined.error().message.find("ended while others were joining") != std::string::npos);
}

TEST_CASE("ranks that do not come are named, and so is why rank 0 is not reached", "[process]") {
  int port = 0;
  {
    const Listener listener = Listener::open(0, true).value();
    port = listener.port();
    const auto joined = accept_ranks(listener, 4, kSecret, 0.2);
    REQUIRE(!joined);
    CHECK(joined.error().code == ErrorCode::kRuntime);
    CHECK(joined.error().message.find("ranks 1, 2, 3 of 4 did not come") != std::string::npos);
  }
  const auto refused = reach_rank_0({{"127.0.0.1"}, port, kSecret}, 1, 2, 0.2);
  REQUIRE(!refused);
  CHECK(refused.error().message.find("rank 1 cannot reach rank 0") == 0);
  CHECK(refused.error().message.find("Connection refused") != std::string::npos);

  // Addresses that do not answer do not keep the others waiting; 192.0.2.0/24 is nobody's.
  const Listener listener = Listener::open(0, true).value();
  auto rank = beside([&] {
    return reach_rank_0({{"192.0.2.1", "192.0.2.2", "127.0.0.1"}, listener.port(), kSecret}, 1, 2,
                        kLong);
  });
  CHECK(accept_ranks(listener, 2, kSecret, kLong).ok());
  CHECK(rank.get().ok());

  // Rank 0 says what a rank that it cannot take has wrong.
  auto wrong = beside([&] {
    return reach_rank_0({{"127.0.0.1"}, listener.port(), kSecret}, 5, 6, 0.3);
  });
  const auto none = accept_ranks(listener, 2, kSecret, 1);
  const auto turned_away = wrong.get();
  REQUIRE(!turned_away);
  CHECK(turned_away.error().message.find("rank 0 says: rank 0 waits for ranks 1 to 1 of 2") !=
        std::string::npos);
  REQUIRE(!none);
  CHECK(none.error().message.find("rank 5 of 6") != std::string::npos);
}

TEST_CASE("too few descriptors are an error that names the limit", "[process]") {
  const Listener listener = Listener::open(0, true).value();
  int words[2];
  REQUIRE(pipe(words) == 0);
  const pid_t child = fork();
  if (child == 0) {
    // One more may be opened: a limit that nobody may raise again, in a process of its own.
    const int next = dup(words[1]);
    const rlimit limit{static_cast<rlim_t>(next) + 1, static_cast<rlim_t>(next) + 1};
    close(next);
    setrlimit(RLIMIT_NOFILE, &limit);
    const auto joined = accept_ranks(listener, 4, kSecret, kLong);
    const std::string text = joined ? "joined" : joined.error().message;
    static_cast<void>(!write(words[1], text.data(), text.size()));
    _exit(0);
  }
  REQUIRE(child > 0);
  close(words[1]);
  std::vector<std::thread> ranks;
  std::atomic<bool> over = false;
  for (int rank = 1; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto reached = reach_rank_0({{"127.0.0.1"}, listener.port(), kSecret}, rank, 4, 1);
      while (reached && !over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    });
  }
  std::string text;
  char part[512];
  for (ssize_t got = 0; (got = read(words[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  over = true;
  waitpid(child, nullptr, 0);
  close(words[0]);
  for (std::thread& rank : ranks) rank.join();
  CHECK(text.find("rank 0 cannot take more connections (Too many open files): 1 of 3") == 0);
  CHECK(text.find("ulimit -n") != std::string::npos);
}

TEST_CASE("the soft limit of descriptors is raised where that is allowed", "[process]") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{64, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  allow_descriptors(300);
  rlimit found{};
  getrlimit(RLIMIT_NOFILE, &found);
  CHECK(found.rlim_cur == std::min<rlim_t>(300, before.rlim_max));
  allow_descriptors(10);
  getrlimit(RLIMIT_NOFILE, &found);
  CHECK(found.rlim_cur == std::min<rlim_t>(300, before.rlim_max));
  setrlimit(RLIMIT_NOFILE, &before);
}

namespace {

// Rank 0 of 3 with a rank 1 that does its part until its calls fail, and a rank 2 that only has a
// connection, on which `says` sends. The failure as rank 0 learns of it.
std::string failure_with_odd_rank(const std::string& says,
                                  const std::function<void(ControlChannel&)>& waits) {
  Listener listener = Listener::open(0, true).value();
  const Rank0Address address{{"127.0.0.1"}, listener.port(), kSecret};
  auto rank = beside([&] {
    auto channel = ControlChannel::connect(address, 1, 3, kLong);
    must(channel.ok());
    (*channel)->limit_silence(3);
    while (!(*channel)->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    static_cast<void>((*channel)->leave([](const Error&) {}));
  });
  std::atomic<bool> over = false;
  auto odd = beside([&] {
    const auto joined = reach_rank_0(address, 2, 3, kLong);
    must(joined.ok());
    joined->socket.send_some(says);
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  auto channel = ControlChannel::accept(std::move(listener), 3, kSecret, kLong);
  REQUIRE(channel);
  (*channel)->limit_silence(3);
  waits(**channel);
  while (!(*channel)->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  over = true;
  odd.get();
  static_cast<void>((*channel)->leave([](const Error&) {}));
  rank.get();
  return (*channel)->failure()->message;
}

bool starts_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

}  // namespace

TEST_CASE("a rank that stops in the middle of a frame is missed by those who wait", "[process]") {
  const std::string half = frame_header(FrameKind::kLastPiece, std::string(1 << 20, 'x')) + "half";
  const std::string silent = "nothing was heard of rank 2 (process ";
  CHECK(starts_with(failure_with_odd_rank(
                        half, [](ControlChannel& channel) { CHECK(!channel.bus().gather("")); }),
                    silent));
  CHECK(starts_with(
      failure_with_odd_rank(
          half, [](ControlChannel& channel) { CHECK(!channel.leave([](const Error&) {})); }),
      silent));
  // One that does not read either, so that what is sent to it does not go.
  CHECK(starts_with(
      failure_with_odd_rank("",
                            [](ControlChannel& channel) {
                              CHECK(!channel.bus().broadcast(std::string(100 << 20, 'x')));
                            }),
      silent));
}

TEST_CASE("what comes together with the welcome is heard", "[process]") {
  const Listener listener = Listener::open(0, true).value();
  auto rank = beside([&] {
    const auto channel =
        ControlChannel::connect({{"127.0.0.1"}, listener.port(), kSecret}, 1, 2, 5);
    must(channel.ok());
    while (!(*channel)->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    static_cast<void>((*channel)->leave([](const Error&) {}));
    return (*channel)->failure()->message;
  });
  pollfd entry{listener.descriptor(), POLLIN, 0};
  REQUIRE(poll(&entry, 1, 60000) == 1);
  Stranger rank_0(listener.accept());
  const Hello hello = hello_of(rank_0.listen()->payload).value();
  const std::string number = random_bytes(16);
  WireWriter challenge;
  challenge.put_text(number);
  challenge.put_text(proof_of_rank_0(kSecret, hello, number));
  rank_0.say(frame(FrameKind::kChallenge, challenge.take()));
  CHECK(rank_0.listen()->payload == proof_of_rank(kSecret, hello, number));
  WireWriter failure;
  failure.put<std::int32_t>(static_cast<int>(ErrorCode::kRuntime));
  failure.put_text("rank 0 broke");
  rank_0.say(frame(FrameKind::kWelcome, "") + frame(FrameKind::kFailure, failure.take()) +
             frame(FrameKind::kBye, ""));
  CHECK(rank.get() == "rank 0 broke");
}

TEST_CASE("a rank that sends what is no message is named", "[process]") {
  const std::string told = "has sent what is no message between ranks: ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string("\x05\xff\xff\xff\xff", 5), "a frame says that it has 4294967295 bytes"},
      {std::string("\x77\x00\x00\x00\x00", 5), "there is no frame of kind 119"},
      {frame(FrameKind::kBye, "x"), "a message between ranks ends too early"},
      {frame(FrameKind::kFailure, ""), "a message between ranks ends too early"},
      {frame(FrameKind::kHello, to_bytes(hello_of_rank(2, 3))), "a word of the handshake after it"},
  };
  for (const auto& [says, why] : cases) {
    const std::string failure = failure_with_odd_rank(says, [](ControlChannel&) {});
    CHECK(starts_with(failure, "rank 2 (process "));
    CHECK(failure.find(told + why) != std::string::npos);
  }
}

namespace {

// Of the same machine, by torchrun.
Launch launch_of(int rank, int port, int local_size) {
  Launch launch;
  launch.rank = rank;
  launch.size = 2;
  launch.local_size = local_size;
  launch.launcher = "torchrun";
  launch.address = "127.0.0.1";
  launch.port = port;
  return launch;
}

class Secret {
 public:
  explicit Secret(const char* secret) {
    secret != nullptr ? setenv("AUTOPAR_SECRET", secret, 1) : unsetenv("AUTOPAR_SECRET");
  }
  ~Secret() { unsetenv("AUTOPAR_SECRET"); }
};

bool joins_and_leaves(const Launch& launch) {
  const auto joined = join_control_at_address(launch, kLong);
  return joined && joined->control->leave([](const Error&) {}).ok();
}

int free_port() { return Listener::open(0, true).value().port(); }

}  // namespace

TEST_CASE("the secret of the environment", "[process]") {
  const Folder folder;
  unsetenv("AUTOPAR_SECRET");
  unsetenv("AUTOPAR_SECRET_FILE");
  CHECK(secret_of_environment().value().empty());
  setenv("AUTOPAR_SECRET_FILE", folder.write("secret", "from the file\n").c_str(), 1);
  CHECK(secret_of_environment().value() == "from the file");
  setenv("AUTOPAR_SECRET_FILE", (folder / "absent").c_str(), 1);
  CHECK(secret_of_environment().error().code == ErrorCode::kUsage);
  {
    const Secret secret("from the variable");
    CHECK(secret_of_environment().value() == "from the variable");
  }
  unsetenv("AUTOPAR_SECRET_FILE");
  const Secret empty("");
  CHECK(secret_of_environment().error().code == ErrorCode::kUsage);
}

TEST_CASE("rank 0 listens no wider than it must", "[process]") {
  // Addresses of this machine that others can use; a number, so that no name service is asked.
  std::vector<std::string> outside = own_addresses(false);
  outside.pop_back();
  if (outside.empty()) WARN("this machine has no address but its own: less is tried");
  struct Case {
    const char* secret;
    int local_size;
    bool is_open;  // to other machines
  };
  for (const Case& is : {Case{nullptr, 2, false}, Case{"s", 2, false}, Case{nullptr, 1, false},
                         Case{"s", 1, true}}) {
    CAPTURE(is.secret == nullptr, is.local_size);
    const Secret secret(is.secret);
    const int port = free_port();
    auto rank_0 = beside([&] { return joins_and_leaves(launch_of(0, port, is.local_size)); });
    const auto connects = [&](const std::string& host) {
      const Socket socket = begin_connection(endpoints_of(host, port)[0]);
      pollfd entry{socket.descriptor(), POLLOUT, 0};
      return socket.is_open() && poll(&entry, 1, 5000) == 1 && connection_error(socket) == 0;
    };
    while (!connects("127.0.0.1")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (!outside.empty()) CHECK(connects(outside[0]) == is.is_open);
    CHECK(joins_and_leaves(launch_of(1, port, is.local_size)));
    CHECK(rank_0.get());
  }
  const Secret none(nullptr);
  Launch elsewhere = launch_of(0, free_port(), 1);
  elsewhere.address = "192.0.2.1";
  const auto joined = join_control_at_address(elsewhere, 1);
  REQUIRE(!joined);
  CHECK(joined.error().message.find("192.0.2.1") != std::string::npos);
  CHECK(joined.error().message.find("AUTOPAR_SECRET") != std::string::npos);
}
