// The control channel where ranks are odd: they stop, send what is no message, or do not come.
#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/process/control.hpp"
#include "strangers.hpp"

namespace autopar::channel_test {

using namespace testing;

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

TEST_CASE("ranks that have come learn why others have not", "[process]") {
  const Listener listener = Listener::open(0, true).value();
  auto rank = beside([&] {
    const auto channel =
        ControlChannel::connect({{"127.0.0.1"}, listener.port(), kSecret}, 1, 3, kLong);
    must(channel.ok());
    while (!(*channel)->failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    static_cast<void>((*channel)->leave([](const Error&) {}));
    return (*channel)->failure()->message;
  });
  std::string told;
  {
    const auto joined = accept_ranks(listener, 3, kSecret, 3);
    REQUIRE(!joined);
    told = joined.error().message;
  }
  CHECK(starts_with(told, "rank 2 of 3 did not come"));
  CHECK(rank.get() == told);
}

TEST_CASE("what is done about a failure has ended when its registration ends", "[process]") {
  FirstFailure failure;
  std::atomic<bool> begun = false;
  std::atomic<bool> may_end = false;
  std::atomic<bool> has_ended = false;
  std::atomic<bool> outlived = false;
  std::thread takes;
  {
    const auto registration = failure.on_first([&] {
      begun = true;
      while (!may_end) std::this_thread::yield();
      has_ended = true;
    });
    takes = std::thread([&] { failure.take({ErrorCode::kRuntime, "first"}); });
    while (!begun) std::this_thread::yield();
    // The main thread sees the failure while the action is still running.
    CHECK(failure.has_happened());
    takes.detach();
    takes = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      may_end = true;
    });
  }
  outlived = has_ended.load();
  takes.join();
  CHECK(outlived);
  CHECK(!failure.take({ErrorCode::kRuntime, "second"}));
  CHECK(failure.known()->message == "first");
  int late = 0;
  {
    const auto registration = failure.on_first([&] { ++late; });
  }
  CHECK(late == 1);
}

}  // namespace autopar::channel_test
