// Looks at what may crash or hang: the program that looks goes on.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <set>
#include <stdexcept>

#include "exec/machine/look.hpp"

namespace autopar::machine_test {
namespace {

constexpr Seconds kLong = 600;

TEST_CASE("what a look finds comes back as it is") {
  const Facts facts = {{"version", "1.2"}, {"path", ""}, {"why", "two words"}};
  REQUIRE(look_apart([&] { return facts; }, kLong) == facts);
  REQUIRE(look_apart([] { return Facts{}; }, kLong).empty());
  // A line is one fact, and a long one passes through a pipe in parts.
  const std::string large(1 << 20, 'x');
  REQUIRE(fact(look_apart(
                   [&] {
                     return Facts{{"a", "b\nc"}, {"large", large}};
                   },
                   kLong),
               "large") == large);
  REQUIRE(fact(look_apart([] { return Facts{{"a", "b\nc"}}; }, kLong), "a") == "b c");
}

TEST_CASE("a look that does not come back is broken and says how") {
  const auto broken = [](const std::function<Facts()>& look, Seconds limit) {
    return fact(look_apart(look, limit), "broken");
  };
  REQUIRE(broken(
              [] {
                std::raise(SIGKILL);
                return Facts{};
              },
              kLong)
              .find("signal 9") != std::string::npos);
  REQUIRE(broken(
              [] {
                _exit(3);
                return Facts{};
              },
              kLong)
              .find("exit code 3") != std::string::npos);
  REQUIRE(broken([]() -> Facts { throw std::runtime_error("no room"); }, kLong) == "no room");
  REQUIRE(broken(
              [] {
                while (true) pause();
                return Facts{};
              },
              0.1)
              .find("did not answer") != std::string::npos);
}

TEST_CASE("a finding has the state of its facts, and not the words for it twice") {
  const Finding broken = finding_of("s", "k", "n", {{"path", "p"}, {"broken", "why"}});
  REQUIRE(broken.state == Found::kBroken);
  REQUIRE(broken.what == "why");
  REQUIRE(broken.facts == Facts{{"path", "p"}});
  REQUIRE(finding_of("s", "k", "n", {{"absent", "why"}}).state == Found::kAbsent);
  REQUIRE(finding_of("s", "k", "n", {{"path", "p"}}).state == Found::kOk);
}

TEST_CASE("every finding is named once and says what is lost where something is") {
  std::set<std::string> keys;
  for (const Finding& finding : examine_machine()) {
    INFO(finding.key);
    REQUIRE(keys.insert(finding.key).second);
    REQUIRE(!finding.what.empty());
    REQUIRE((finding.state == Found::kOk) == finding.without.empty());
  }
  REQUIRE(keys.count("onnx_runtime") == 1);
}

}  // namespace
}  // namespace autopar::machine_test
