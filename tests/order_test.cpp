// The order proof: against a plain simulation of all orders of play, and on damaged programs; what
// is filled in of programs by hand, and files of several programs.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <set>

#include "autopar/export.hpp"
#include "folder.hpp"
#include "order_programs.hpp"
#include "strategies.hpp"

namespace autopar::order_test {

using namespace testing;
using namespace testing::order_programs;

namespace {

// What a rank does, read from a program that is one line of ops.
struct Move {
  std::string type;
  Ints group;  // Send, Recv: sender, receiver
  std::string attributes;
};

std::vector<Move> moves_of(const Graph& graph, std::int64_t rank) {
  std::vector<Move> moves;
  for (const Op& op : graph.ops) {
    const Ints groups = op.ints_attribute("groups");
    const std::int64_t size = op.int_attribute("group_size", 0);
    for (std::size_t g = 0; g < groups.size(); g += static_cast<std::size_t>(size)) {
      const Ints group(groups.begin() + static_cast<std::ptrdiff_t>(g),
                       groups.begin() + static_cast<std::ptrdiff_t>(g) + size);
      if (op.type == "Send"   ? group[0] != rank
          : op.type == "Recv" ? group[1] != rank
                              : std::count(group.begin(), group.end(), rank) == 0) {
        continue;
      }
      Shape shape = op.inputs.empty() ? Shape{} : graph.value(op.inputs[0]).shape;
      if (op.type == "Recv") shape = op.ints_attribute("shape");
      moves.push_back({op.type, group,
                       to_text(shape) + std::to_string(op.int_attribute("axis", 0)) +
                           std::to_string(op.int_attribute("tag", 0)) +
                           std::to_string(op.int_attribute("root", 0)) +
                           op.string_attribute("reduce_op", "")});
    }
  }
  return moves;
}

// Whether all orders of play come to the end with calls that fit: looks at every state that can be
// reached, by where each rank stands.
class AllOrders {
 public:
  explicit AllOrders(std::vector<std::vector<Move>> ranks) : ranks_(std::move(ranks)) {}
  bool good() { return good_from(std::vector<std::size_t>(ranks_.size())); }

 private:
  bool good_from(const std::vector<std::size_t>& at) {
    if (!seen_.insert(at).second) return true;
    bool moved = false, ended = true;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (at[r] == ranks_[r].size()) continue;
      ended = false;
      const Move& move = ranks_[r][at[r]];
      const bool message = move.type == "Send" || move.type == "Recv";
      bool all = true, fit = true;
      for (std::int64_t other : move.group) {
        const auto o = static_cast<std::size_t>(other);
        if (at[o] == ranks_[o].size()) {
          all = false;
          continue;
        }
        const Move& its = ranks_[o][at[o]];
        const bool its_message = its.type == "Send" || its.type == "Recv";
        all &= its.group == move.group && message == its_message &&
               (!message || o == r || its.type != move.type);
        fit &= its.attributes == move.attributes && (message || its.type == move.type);
      }
      if (!all) continue;
      if (!fit) return false;
      moved = true;
      std::vector<std::size_t> next = at;
      for (std::int64_t other : move.group) ++next[static_cast<std::size_t>(other)];
      if (!good_from(next)) return false;
    }
    return moved || ended;
  }

  std::vector<std::vector<Move>> ranks_;
  std::set<std::vector<std::size_t>> seen_;
};

bool good_by_all_orders(const std::vector<ProgramOnRanks>& programs, std::int64_t world) {
  std::vector<std::vector<Move>> ranks(static_cast<std::size_t>(world));
  for (const ProgramOnRanks& program : programs) {
    for (std::int64_t rank : program.ranks) {
      ranks[static_cast<std::size_t>(rank)] = moves_of(*program.program, rank);
    }
  }
  return AllOrders(std::move(ranks)).good();
}

struct Letter {
  std::string type;
  Ints group;
};

// All programs of up to `length` ops.
std::vector<Graph> words(const std::vector<Letter>& letters, std::size_t length) {
  std::vector<std::vector<std::size_t>> spellings = {{}};
  for (std::size_t begin = 0, l = 0; l < length; ++l) {
    const std::size_t end = spellings.size();
    for (; begin < end; ++begin) {
      for (std::size_t k = 0; k < letters.size(); ++k) {
        std::vector<std::size_t> longer = spellings[begin];
        longer.push_back(k);
        spellings.push_back(std::move(longer));
      }
    }
  }
  std::vector<Graph> graphs;
  for (const auto& spelling : spellings) {
    Writer writer;
    for (std::size_t k : spelling) {
      writer.add(letters[k].type, letters[k].group,
                 static_cast<std::int64_t>(letters[k].group.size()));
    }
    graphs.push_back(std::move(writer.graph));
  }
  return graphs;
}

}  // namespace

TEST_CASE("two ranks with programs of up to three ops each, all of them", "[order]") {
  const std::vector<Letter> letters = {{"AllReduce", {0, 1}}, {"AllGather", {0, 1}},
                                       {"Send", {0, 1}},      {"Send", {1, 0}},
                                       {"Recv", {1, 0}},      {"Recv", {0, 1}}};
  // Rank 0 sends and receives by letters 0, 1, 2, 4; rank 1 by 0, 1, 3, 5.
  const std::vector<Graph> first = words({letters[0], letters[1], letters[2], letters[4]}, 3);
  const std::vector<Graph> second = words({letters[0], letters[1], letters[3], letters[5]}, 3);
  int good = 0, bad = 0, wrong = 0;
  for (const Graph& a : first) {
    for (const Graph& b : second) {
      const std::vector<ProgramOnRanks> programs = {{&a, {0}, "a"}, {&b, {1}, "b"}};
      const bool expected = good_by_all_orders(programs, 2);
      (expected ? good : bad)++;
      wrong += prove_order(programs, 2).ok() != expected;
    }
  }
  CHECK(wrong == 0);
  CHECK(good == 85);  // each program fits exactly one
  CHECK(bad == 85 * 85 - 85);
}

TEST_CASE("three ranks with programs of two ops, all that are not alike", "[order]") {
  std::array<std::vector<Graph>, 3> programs;
  for (std::int64_t r = 0; r < 3; ++r) {
    std::vector<Letter> letters;
    for (const Ints& group : {Ints{0, 1}, Ints{0, 2}, Ints{1, 2}, Ints{0, 1, 2}}) {
      if (std::count(group.begin(), group.end(), r)) letters.push_back({"AllReduce", group});
    }
    for (std::int64_t other = 0; other < 3; ++other) {
      if (other == r) continue;
      letters.push_back({"Send", {r, other}});
      letters.push_back({"Recv", {other, r}});
    }
    programs[static_cast<std::size_t>(r)] = words(letters, 2);
  }
  int good = 0, wrong = 0;
  for (std::size_t a = 0; a < programs[0].size(); ++a) {
    for (std::size_t b = 0; b < programs[1].size(); ++b) {
      for (std::size_t c = (a + b) % 3; c < programs[2].size(); c += 3) {
        const std::vector<ProgramOnRanks> world = {
            {&programs[0][a], {0}, "a"}, {&programs[1][b], {1}, "b"}, {&programs[2][c], {2}, "c"}};
        const bool expected = good_by_all_orders(world, 3);
        good += expected;
        wrong += prove_order(world, 3).ok() != expected;
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(good > 20);
}

TEST_CASE("programs at random on several ranks each", "[order]") {
  Random random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int good = 0, wrong = 0;
  constexpr int kWorlds = 4000;
  for (int i = 0; i < kWorlds; ++i) {
    const std::int64_t world = 4;
    const bool two = below(2) == 0;
    const std::vector<Ints> ranks =
        two ? std::vector<Ints>{{0, 1}, {2, 3}} : std::vector<Ints>{{0, 1, 2, 3}};
    std::vector<Writer> writers(ranks.size());
    const std::size_t steps = 1 + below(4);
    for (std::size_t s = 0; s < steps; ++s) {
      if (below(2) == 0) {  // a collective over pairs of all ranks, or the whole world
        const std::vector<Ints> lists = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 3, 1, 2}};
        const Ints& groups = lists[below(3)];
        const std::int64_t size = below(4) == 0 ? 4 : 2;
        const char* types[] = {"AllReduce", "AllGather"};
        const char* type = types[below(8) == 0];
        for (Writer& writer : writers) {
          writer.add(below(16) == 0 ? "Broadcast" : type, groups, size);
        }
        continue;
      }
      // Messages along a random permutation of the ranks, sometimes a pair of them only.
      Ints order = up_to(world);
      std::shuffle(order.begin(), order.end(), random);
      Ints pairs = {order[0], order[1]};
      if (below(2)) pairs.insert(pairs.end(), {order[1], order[2]});
      if (below(3) == 0) pairs.insert(pairs.end(), {order[3], order[0]});
      const std::size_t first = below(4);
      for (std::size_t w = 0; w < writers.size(); ++w) {
        const bool receives_first = first == 3 ? w == 0 : first == 2;
        writers[w].add(receives_first ? "Recv" : "Send", pairs, 2);
        if (below(24) != 0) writers[w].add(receives_first ? "Send" : "Recv", pairs, 2);
      }
    }
    std::vector<ProgramOnRanks> programs;
    for (std::size_t w = 0; w < writers.size(); ++w) {
      programs.push_back({&writers[w].graph, ranks[w], std::to_string(w)});
    }
    const bool expected = good_by_all_orders(programs, world);
    good += expected;
    const Status status = prove_order(programs, world);
    if (status.ok() != expected) {
      ++wrong;
      UNSCOPED_INFO(i << (status ? " accepted" : ": " + status.error().message));
    }
  }
  CHECK(wrong == 0);
  CHECK(good > kWorlds / 10);
  CHECK(good < kWorlds * 9 / 10);
}

TEST_CASE("plans of random strategies are proven, and damaged ones are not", "[order]") {
  Random random(3);
  GraphWriter b;
  const ValueId x = b.input("X", {12, 24});
  const ValueId w = b.parameter("W", {24, 36}), v = b.parameter("V", {36, 12});
  const ValueId h = b.op("Relu", {b.op("MatMul", {x, w}, {12, 36})}, {12, 36});
  b.graph.outputs = {b.op("MatMul", {h, v}, {12, 12})};
  const GraphRules rules = rules_of(b.graph).value();
  const Cluster cluster = cluster_of({2, 3});
  const Mesh mesh = make_mesh(cluster, {3, 2}).value();
  int plans = 0, pairs = 0;
  for (int i = 0; i < 60; ++i) {
    const auto made =
        partition(b.graph, rules, random_strategy(b.graph, rules, mesh, random), cluster);
    if (!made.ok()) continue;
    ++plans;
    const Graph& good = made->program;
    const Ints even = {0, 2, 4}, odd = {1, 3, 5};
    CHECK(proof(good, 6).empty());
    std::vector<std::size_t> calls;
    for (std::size_t o = 0; o < good.ops.size(); ++o) {
      if (!good.ops[o].domain.empty() && good.ops[o].type != "ShardSlice") calls.push_back(o);
    }
    CHECK(proof({{&good, even, "even"}, {&good, odd, "odd"}}, 6).empty());
    for (std::size_t k = 0; k < calls.size(); ++k) {
      Graph damaged = good;
      Op& op = damaged.ops[calls[k]];
      Ints groups = op.ints_attribute("groups");
      groups.resize(groups.size() - static_cast<std::size_t>(op.int_attribute("group_size", 1)));
      op.attributes["groups"] = groups;
      CHECK(!proof(damaged, 6).empty());
      damaged = good;
      damaged.value(damaged.ops[calls[k]].outputs[0]).shape.back() += 1;
      CHECK(!proof(damaged, 6).empty());
      if (k == 0) continue;
      ++pairs;
      damaged = good;  // as another tool might write it: numbers swapped, in one program of two
      std::swap(damaged.ops[calls[k - 1]].attributes["seq"],
                damaged.ops[calls[k]].attributes["seq"]);
      CHECK(!proof({{&good, even, "even"}, {&damaged, odd, "odd"}}, 6).empty());
    }
  }
  CHECK(plans > 20);
  CHECK(pairs > 20);
}

TEST_CASE("thousands of collectives on many ranks are proven at once", "[order]") {
  constexpr std::int64_t kRanks = 16384;
  Ints strided;
  for (std::int64_t r = 0; r < kRanks; ++r) strided.push_back(r % 64 * 256 + r / 64);
  const IntList lists[] = {up_to(kRanks), strided};
  Writer writer;
  for (int i = 0; i < 4000; ++i) {
    writer.add("AllReduce", {}, 64);
    writer.graph.ops.back().attributes["groups"] = lists[i % 2];
  }
  const auto begin = std::chrono::steady_clock::now();
  CHECK(proof(writer.graph, kRanks).empty());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

TEST_CASE("every meeting is told after those before it on its ranks", "[order]") {
  const Ints all = {0, 1, 2, 3}, pair = {1, 2};
  const Graph graph = Writer()
                          .add("AllReduce", all, 2)
                          .add("Send", pair, 2)
                          .add("Recv", pair, 2)
                          .add("AllReduce", all, 4)
                          .graph;
  std::vector<std::int64_t> last(4, -1);
  std::vector<std::string> met;
  const Status proven =
      prove_order({{&graph, up_to(4)}}, 4, [&](const std::vector<Caller>& callers) {
        std::string text;
        for (const Caller& caller : callers) {
          CHECK(caller.op.value > last[static_cast<std::size_t>(caller.rank)]);
          last[static_cast<std::size_t>(caller.rank)] = caller.op.value;
          text += graph.op(caller.op).name + std::to_string(caller.rank);
        }
        met.push_back(text);
      });
  CHECK(proven.ok());
  std::sort(met.begin(), met.end());
  CHECK(met == std::vector<std::string>{"a0a1", "a2a3", "b1c2", "d0d1d2d3"});
}

TEST_CASE("what a program by hand leaves out is filled in", "[order]") {
  Graph graph = Writer()
                    .add("AllReduce", {0, 1, 2, 3}, 2)
                    .add("AllGather", {0, 1, 2, 3}, 2)
                    .add("Send", {0, 1}, 2)
                    .add("Recv", {0, 1}, 2)
                    .graph;
  const Graph good = graph;
  for (Op& op : graph.ops) {
    op.attributes.erase("seq");
    op.inputs.resize(op.type == "Recv" ? 0 : 1);
  }
  graph.ops[0].attributes.erase("reduce_op");
  graph.ops[1].attributes["axis"] = std::int64_t{-2};
  graph.ops[2].attributes.erase("group_size");
  const Mesh mesh{{{"ranks", 4, 0, 1}}};
  const auto warnings = complete_collectives(graph, mesh);
  REQUIRE(warnings.ok());
  REQUIRE(warnings->size() == 2);
  CHECK((*warnings)[0] == "4 of 4 collectives had no seq: numbered in the order of the file");
  CHECK((*warnings)[1].find(
            "3 of 4 collectives did not wait for the one before, the first AllGather 'b'") == 0);
  CHECK(to_text(graph) == to_text(good));
  CHECK(proof(graph, 4).empty());
  CHECK(listed_ranks(graph) == 4);
  // What is whole stays as it is.
  const auto again = complete_collectives(graph, mesh);
  REQUIRE(again.ok());
  CHECK(again->empty());
  CHECK(to_text(graph) == to_text(good));
  graph.ops[0].attributes.erase("groups");
  CHECK(complete_collectives(graph, mesh).error().message.find("needs the attribute groups") !=
        std::string::npos);
}

TEST_CASE("programs of two stages are written and read back", "[order]") {
  const Folder folder;
  const auto plan_of = [](const Graph& graph) {
    Plan plan;
    plan.program = graph;
    plan.program.name = "stage";
    plan.mesh = {{{"ranks", 2, 0, 1}}};
    const auto whole = [&](const std::vector<ValueId>& ids) {
      std::vector<BoundaryValue> values;
      for (ValueId id : ids) {
        const Value& v = graph.value(id);
        values.push_back({v.name, v.dtype, v.shape, replicated(v.shape.size())});
      }
      return values;
    };
    plan.inputs = whole(graph.inputs);
    plan.outputs = whole(graph.outputs);
    return plan;
  };
  const Ints pairs = {0, 2, 1, 3};
  const auto write = [&](const Graph& graph, std::int64_t stage) {
    PlanMetadata metadata;
    metadata.version = AUTOPAR_VERSION;
    metadata.stage = stage;
    metadata.ranks = stage == 0 ? Ints{0, 1} : Ints{2, 3};
    metadata.world_size = 4;
    const auto written = write_plan(plan_of(graph), metadata,
                                    folder / ("plan.stage" + std::to_string(stage) + ".onnx"));
    INFO((written.ok() ? "" : written.error().message));
    REQUIRE(written.ok());
  };
  write(Writer().add("AllReduce", {0, 1}, 2).add("Send", pairs, 2).graph, 0);
  write(Writer().add("Recv", pairs, 2).add("AllReduce", {2, 3}, 2).graph, 1);
  const std::string path = folder / "";
  const auto files = read_programs(path);
  INFO((files.ok() ? "" : files.error().message));
  REQUIRE(files.ok());
  REQUIRE(files->size() == 2);
  CHECK((*files)[1].ranks == Ints{2, 3});
  CHECK((*files)[1].world_size == 4);
  CHECK(!(*files)[1].by_hand);
  const auto alone = read_programs(folder / "plan.stage1.onnx");
  REQUIRE(!alone.ok());
  CHECK(alone.error().message.find("is the program of 2 of 4 ranks") != std::string::npos);
  write(Writer().add("Recv", {2, 3}, 2).graph, 1);  // from a rank that does not send
  const auto wrong = read_programs(path);
  REQUIRE(!wrong.ok());
  CHECK(wrong.error().message.find("rank 2") != std::string::npos);
}

}  // namespace autopar::order_test
