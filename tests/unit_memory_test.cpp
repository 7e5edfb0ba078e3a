// UnitMemory: plans of a unit at prices of memory, where prices by paths mislead.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <algorithm>

#include "planning/pipelines/unit_memory.hpp"
#include "strategies.hpp"

namespace autopar::unit_memory_test {

using namespace testing;

namespace {

// A weight is stored whole (100 bytes), in parts (10 bytes) that each pass gathers, or in parts (90
// bytes) that are gathered beside other work, which only prices by paths know.
constexpr double kWhole = 100, kParts = 10, kBeside = 90;
constexpr Seconds kTimeBeside = 0.95;

// By paths gathering looks as good as free, and takes `gathering` in truth.
UnitMemory::Problems one_weight(Seconds gathering, int& by_paths, int& by_weights) {
  return [gathering, &by_paths, &by_weights](
             Graph&, const UnitWay& way) -> Result<std::optional<PricedProblem>> {
    ++(way.by_paths ? by_paths : by_weights);
    PricedProblem priced;
    MeshProblem& built = priced.built;
    ProblemNode node{"w",
                     {1, way.by_paths ? 1.01 : gathering, way.by_paths ? kTimeBeside : 1.05},
                     {{0, 2, {kWhole, kParts, kBeside}}}};
    built.problem.nodes = {std::move(node)};
    built.problem.horizon = 2;
    built.node_of_op = {-1, -1};
    built.source_node = {-1, 0, -1, -1};
    built.hub_node = built.output_node = {-1, -1, -1, -1};
    priced.seconds = [gathering](const MeshProblem&, const std::vector<int>& choices) {
      const std::vector<Seconds> takes = {1, gathering, kTimeBeside};
      return Result<Seconds>(takes[static_cast<std::size_t>(choices.at(0))]);
    };
    return std::optional(std::move(priced));
  };
}

std::shared_ptr<UnitShelf> shelf(double bytes = 1e9) { return std::make_shared<UnitShelf>(bytes); }

Graph unit() {
  GraphWriter b;
  const ValueId x = b.input("x", {4, 4}), w = b.parameter("w", {4, 4});
  const ValueId y = b.op("MatMul", {x, w}, {4, 4}, {}, "y");
  b.graph.outputs = {b.op("MatMul", {y, w}, {4, 4}, {}, "late")};
  b.graph.ops[1].phase = Phase::kBackward;
  return b.graph;
}

}  // namespace

TEST_CASE("plans that prices by paths mislead are made by weights of streams", "[unit_memory]") {
  const Graph graph = unit();
  for (const Seconds gathering : {1.1, 3.0}) {
    int by_paths = 0, by_weights = 0;
    UnitMemory memory(
        graph, {"w"}, {}, {{Recompute::kNone, "2", 0, true}}, 2,
        one_weight(gathering, by_paths, by_weights), [] { return false; }, shelf());
    // A byte costs 0.001: stored whole takes 1.1, in parts 1.02 by paths.
    const auto found = memory.least(1, 1e-3);
    REQUIRE(found);
    CHECK(by_paths == 1);
    const bool is_misled = gathering > 2;
    CHECK(by_weights == (is_misled ? 1 : 0));
    CHECK(found->bytes == (is_misled ? kWhole : kParts));
    CHECK(found->cost == Approx(is_misled ? 1 : 1.01));
    const auto plans = memory.plans();
    REQUIRE(plans);
    for (const UnitPlan& plan : *plans) CHECK(plan.seconds < 2);
    CHECK(memory.ways()[0].by_paths != is_misled);
  }
}

TEST_CASE("plans by paths that are not misled are kept beside those by weights", "[unit_memory]") {
  const Graph graph = unit();
  int by_paths = 0, by_weights = 0;
  UnitMemory memory(
      graph, {"w"}, {}, {{Recompute::kNone, "2", 0, true}}, 2, one_weight(3, by_paths, by_weights),
      [] { return false; }, shelf());
  const auto free = memory.least(1, 0);
  REQUIRE(free);
  CHECK(free->bytes == kBeside);
  const auto dear = memory.least(1, 1e-3);
  REQUIRE(dear);
  CHECK(dear->bytes == kWhole);
  CHECK_FALSE(memory.ways()[0].by_paths);
  const auto plans = memory.plans();
  REQUIRE(plans);
  std::vector<double> bytes;
  for (const UnitPlan& plan : *plans) {
    CHECK(plan.is_of_left == (plan.seconds == kTimeBeside));
    CHECK(memory.asked_of(plan).in_flight == 1);
    bytes.push_back(plan.stored);
  }
  std::sort(bytes.begin(), bytes.end());
  CHECK(bytes == std::vector<double>{kBeside, kWhole});
}

// Of units that do not fit at the first price; what was found of another problem says nothing about
// what lies between two prices.
TEST_CASE("the price of a room is found anew where paths are left on the way", "[unit_memory]") {
  const Graph graph = unit();
  int by_paths = 0, by_weights = 0;
  UnitMemory memory(
      graph, {"w"}, {}, {{Recompute::kNone, "2", 0, true}}, 2, one_weight(3, by_paths, by_weights),
      [] { return false; }, shelf());
  const auto found = memory.price_of_room(1, 10, 10 * (kParts + 1));
  REQUIRE(found);
  CHECK_FALSE(memory.ways()[0].by_paths);
  UnitMemory weighed(
      graph, {"w"}, {}, {{Recompute::kNone, "2", 0, false}}, 2, one_weight(3, by_paths, by_weights),
      [] { return false; }, shelf());
  const auto expected = weighed.price_of_room(1, 10, 10 * (kParts + 1));
  REQUIRE(expected);
  CHECK(found->price == expected->price);
  CHECK(found->bound == expected->bound);
}

TEST_CASE("problems of units that are not at hand are built again", "[unit_memory]") {
  const Graph graph = unit();
  const std::vector<UnitWay> ways = {{Recompute::kNone, "2", 0, true},
                                     {Recompute::kCheap, "2", 0, true}};
  int kept_by_paths = 0, kept_by_weights = 0, by_paths = 0, by_weights = 0;
  const auto never = [] { return false; };
  UnitMemory kept(graph, {"w"}, {}, ways, 2, one_weight(3, kept_by_paths, kept_by_weights), never,
                  shelf());
  UnitMemory built(graph, {"w"}, {}, ways, 2, one_weight(3, by_paths, by_weights), never, shelf(0));
  for (const double price : {0.0, 1e-3, 1e-2, 1e-1, 1.0}) {
    const auto one = kept.least(2, price), other = built.least(2, price);
    REQUIRE(one.ok());
    REQUIRE(other.ok());
    CHECK(one->bound == other->bound);
    CHECK(one->cost == other->cost);
    CHECK(one->bytes == other->bytes);
  }
  const auto plans = kept.plans(), same = built.plans();
  REQUIRE(plans.ok());
  REQUIRE(same.ok());
  REQUIRE(plans->size() == same->size());
  for (std::size_t p = 0; p < plans->size(); ++p) {
    CHECK((*plans)[p].seconds == (*same)[p].seconds);
    CHECK((*plans)[p].stored == (*same)[p].stored);
  }
  CHECK(by_paths + by_weights > kept_by_paths + kept_by_weights);
}

TEST_CASE("a shelf has what was asked for last, and of each owner its own", "[unit_memory]") {
  UnitShelf shelf(10);
  const std::uint64_t one = shelf.new_owner(), other = shelf.new_owner();
  const auto problem = std::make_shared<const int>(1);
  shelf.put({one, 0}, problem, 4);
  shelf.put({one, 1}, problem, 4);
  CHECK(shelf.find({one, 0}) != nullptr);
  shelf.put({other, 0}, problem, 4);  // the one that was not asked for goes
  CHECK(shelf.find({one, 1}) == nullptr);
  CHECK(shelf.find({one, 0}) != nullptr);
  shelf.put({other, 1}, problem, 100);
  CHECK(shelf.find({other, 1}) != nullptr);
  CHECK(shelf.find({one, 0}) == nullptr);
  shelf.put({one, 2}, problem, 1);
  CHECK(shelf.find({other, 1}) == nullptr);
  shelf.clear(one);
  CHECK(shelf.find({one, 2}) == nullptr);
}

}  // namespace autopar::unit_memory_test
