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
#include "strangers.hpp"

namespace autopar::handshake_test {

using namespace testing;

namespace {

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
      std::string("\x00\x08\x00\x00\x00\x00\x00\x00\x00"
                  "autopar ",
                  17),
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
    ::close(next);
    setrlimit(RLIMIT_NOFILE, &limit);
    const auto joined = accept_ranks(listener, 4, kSecret, kLong);
    const std::string text = joined ? "joined" : joined.error().message;
    static_cast<void>(!write(words[1], text.data(), text.size()));
    _exit(0);
  }
  REQUIRE(child > 0);
  ::close(words[1]);
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
  ::close(words[0]);
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
    // Until it listens, or could not.
    while (!connects("127.0.0.1") &&
           rank_0.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
    }
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

}  // namespace autopar::handshake_test
