// What the order proof says of programs that it refuses.
#include <catch2/catch.hpp>
#include <functional>

#include "order_programs.hpp"

namespace autopar::order_errors_test {

using namespace testing::order_programs;

TEST_CASE("errors name ranks, ops and groups", "[order]") {
  const auto pair = [] {
    return Writer().add("AllReduce", {0, 1}, 2).add("AllGather", {0, 1}, 2).graph;
  };
  const Graph a = pair();
  const auto refused = [&](const std::function<void(Graph&)>& change, const std::string& what) {
    Graph b = pair();
    change(b);
    const std::string message = proof({{&a, {0}, "one"}, {&b, {1}, "two"}}, 2);
    INFO(message);
    CHECK(message.find(what) != std::string::npos);
  };
  CHECK(proof({{&a, {0}, "one"}, {&a, {1}, "two"}}, 2).empty());
  CHECK(proof(a, 2).empty());
  // A pair swapped in one program of two.
  const Graph swapped = Writer().add("AllGather", {0, 1}, 2).add("AllReduce", {0, 1}, 2).graph;
  CHECK(
      proof({{&a, {0}, "one"}, {&swapped, {1}, "two"}}, 2) ==
      "rank 1 issues AllGather 'a' (seq 0) where rank 0 issues AllReduce 'a' (seq 0) on the group "
      "[0,1]");
  refused([](Graph& g) { std::swap(g.ops[0].attributes["seq"], g.ops[1].attributes["seq"]); },
          "two: op 'b' (ai.autopar::AllGather): seq 0 must be above that of AllReduce 'a' (seq 1)");
  refused([](Graph& g) { g.ops[0].attributes.erase("seq"); }, "seq (the order of issue");
  refused([](Graph& g) { g.ops[1].inputs.pop_back(); },
          "does not wait for AllReduce 'a' (seq 0), the collective before it");
  refused([](Graph& g) { g.ops[0].attributes["reduce_op"] = std::string("max"); },
          "reduce_op max, but rank 0 has reduce_op sum in AllReduce 'a' (seq 0)");
  refused([](Graph& g) { g.ops[0].attributes["reduce_op"] = std::string("mean"); },
          "reduce_op 'mean' is none of");
  refused(
      [](Graph& g) {
        g.ops[1].attributes["axis"] = std::int64_t{1};
        g.values.back().shape = {4, 12};
      },
      "axis 1, but rank 0 has axis 0 in AllGather 'b' (seq 1)");
  refused([](Graph& g) { g.ops[1].attributes["axis"] = std::int64_t{1}; },
          "gives float32[4,12], but its output 'b_out' is float32[8,6]");
  refused(
      [](Graph& g) {
        for (Value& value : g.values) value.dtype = DType::kFloat16;
      },
      "dtype float16, but rank 0 has dtype float32");
  refused(
      [](Graph& g) {
        for (Value& value : g.values) value.shape[1] = 7;
      },
      "shape [4,7], but rank 0 has shape [4,6] in AllReduce 'a' (seq 0)");
  refused(
      [](Graph& g) {
        g.ops[0].attributes["groups"] = Ints{1, 0};
      },
      "rank 0 issues AllReduce 'a' (seq 0) on the group [0,1] and waits for rank 1; rank 1 "
      "issues AllReduce 'a' (seq 0) on the group [1,0] and waits for rank 0");
  refused([](Graph& g) { g.ops[0].type = "AllMix"; }, "is not an op of this domain");
  refused([](Graph& g) { g.ops[0].type = "MakePartial"; }, "is not lowered");
  refused([](Graph& g) { g.ops.resize(1); },
          "rank 0 issues AllGather 'b' (seq 1) on the group [0,1], but rank 1 has no further "
          "collective");
  CHECK(proof({{&a, {0}, "one"}}, 2) == "rank 1 of 2 runs no program");
  CHECK(proof({{&a, {0, 1}, "one"}, {&a, {1}, "two"}}, 2) ==
        "two: rank 1 already runs one; a rank runs exactly one program");
  CHECK(proof({{&a, {0, 1}, "one"}}, 0).find("a world of 0 ranks") != std::string::npos);
}

TEST_CASE("groups that are no partition of the ranks", "[order]") {
  const auto refused = [](const Ints& groups, std::int64_t size, const std::string& what) {
    const std::string message = proof(Writer().add("AllReduce", groups, size).graph, 4);
    INFO(message);
    CHECK(message.find(what) != std::string::npos);
  };
  CHECK(proof(Writer().add("AllReduce", {0, 3, 1, 2}, 2).graph, 4).empty());
  refused({0, 1, 2}, 3, "rank 3 runs it, but is in none of its groups");
  refused({0, 1, 1, 2}, 2, "list rank 1 twice, the second time in the group [1,2]");
  refused({0, 1, 2, 3}, 3, "group_size 3 does not divide the 4 ranks");
  refused({0, 1, 2, 4}, 2, "list rank 4; expected ranks from 0 to 3");
  refused({0, 1, 2, -1}, 2, "list rank -1");
  refused({0, 1, 2, 3}, 0, "group_size is missing or less than 1");
  refused({}, 2, "rank 0 runs it, but is in none of its groups");
  CHECK(proof(Writer().add("Broadcast", {0, 1, 2, 3}, 2, {{"root", std::int64_t{2}}}).graph, 4)
            .find("root 2 is no position in a group of 2") != std::string::npos);
}

TEST_CASE("messages", "[order]") {
  const auto message = [](const Graph& graph, std::int64_t world) { return proof(graph, world); };
  // A shift along a line ends; around a ring all send first and nobody receives.
  const Ints line = {0, 1, 1, 2, 2, 3}, ring = {0, 1, 1, 2, 2, 3, 3, 0};
  CHECK(message(Writer().add("Send", line, 2).add("Recv", line, 2).graph, 4).empty());
  CHECK(
      message(Writer().add("Send", ring, 2).add("Recv", ring, 2).graph, 4) ==
      "the ranks stop in a circle: rank 0 issues Send 'a' (seq 0) to rank 1 and waits for rank 1; "
      "rank 1 issues Send 'a' (seq 0) to rank 2 and waits for rank 2; "
      "rank 2 issues Send 'a' (seq 0) to rank 3 and waits for rank 3; "
      "rank 3 issues Send 'a' (seq 0) to rank 0 and waits for rank 0");
  const Ints even = {0, 1, 2, 3}, odd = {1, 2, 3, 0};
  CHECK(message(Writer()
                    .add("Send", even, 2)
                    .add("Recv", even, 2)
                    .add("Send", odd, 2)
                    .add("Recv", odd, 2)
                    .graph,
                4)
            .empty());
  CHECK(message(Writer().add("Send", even, 2).graph, 4) ==
        "rank 0 issues Send 'a' (seq 0) to rank 1, but rank 1 has no Recv for it");
  CHECK(message(Writer().add("Recv", even, 2).graph, 4) ==
        "rank 1 issues Recv 'a' (seq 0) from rank 0, but rank 0 has no Send for it");
  CHECK(message(Writer().add("Send", {0, 1, 0, 2}, 2).graph, 4)
            .find("rank 0 is the sender of two pairs") != std::string::npos);
  CHECK(message(Writer().add("Recv", {0, 1, 2, 1}, 2).graph, 4)
            .find("rank 1 is the receiver of two pairs") != std::string::npos);
  CHECK(message(Writer().add("Send", {1, 1}, 2).graph, 4).find("rank 1 sends to itself") !=
        std::string::npos);
  CHECK(message(Writer().add("Send", {0, 1, 2}, 3).graph, 4).find("group_size must be 2") !=
        std::string::npos);
  const Graph wide =
      Writer().add("Send", even, 2).add("Recv", even, 2, {{"shape", Ints{4, 6, 1}}}).graph;
  CHECK(message(wide, 4).find("gives float32[4,6,1], but its output 'b_out' is float32[4,6]") !=
        std::string::npos);
  Graph half =
      Writer().add("Send", even, 2).add("Recv", even, 2, {{"dtype", std::int64_t{10}}}).graph;
  half.values.back().dtype = DType::kFloat16;
  CHECK(
      message(half, 4) ==
      "rank 1 issues Recv 'b' (seq 1) with dtype float16, but rank 0 has dtype float32 in Send 'a' "
      "(seq 0)");
  CHECK(
      message(Writer().add("Send", even, 2, {{"tag", std::int64_t{5}}}).add("Recv", even, 2).graph,
              4) ==
      "rank 1 issues Recv 'b' (seq 1) with tag 0, but rank 0 has tag 5 in Send 'a' (seq 0)");
}

}  // namespace autopar::order_errors_test
