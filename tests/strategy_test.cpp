// Readers of values, and strategies that the verifier accepts or refuses.
#include <catch2/catch.hpp>
#include <set>

#include "strategies.hpp"

namespace autopar::strategy_test {

using namespace testing;

namespace {

bool says(const Status& status, const std::string& what) {
  INFO((status.ok() ? "accepted" : status.error().message));
  const bool found = !status.ok() && status.error().message.find(what) != std::string::npos;
  CHECK(found);
  return found;
}

// x is read at 0 and twice at 2; h is read at 1 and leaves; d is read by nobody.
Graph diamond() {
  GraphWriter b;
  const ValueId x = b.input("x", {4, 4});
  const ValueId h = b.op("Relu", {x}, {4, 4}, {}, "a");
  const ValueId y = b.op("Neg", {h}, {4, 4}, {}, "b");
  const ValueId z = b.op("Add", {x, x}, {4, 4}, {}, "c");
  const ValueId s = b.op("Add", {y, z}, {4, 4}, {}, "e");
  b.input("unused", {3});
  b.graph.outputs = {h, s};
  return b.graph;
}

struct Case {
  Graph graph = two_matmuls();
  GraphRules rules = rules_of(graph).value();
  Cluster cluster = cluster_of({2, 2});
  Mesh mesh = make_mesh(cluster, {2, 2}).value();
  Strategy strategy = named_strategy(graph, rules, mesh, {{"m", "n"}, {"m", "k"}});
};

}  // namespace

// Pad says of its value no more than that it is a zero, and of where it pads all; a Cast says of
// partial sums what `sums` does.
TEST_CASE("rules of a graph are those of its ops one by one", "[strategy]") {
  GraphWriter b;
  const ValueId x = b.input("x", {4, 4});
  const std::vector<ValueId> places = {b.ints("right", {0, 0, 0, 2}),
                                       b.ints("below", {0, 0, 2, 0})};
  const std::vector<ValueId> values = {b.ints("zero", {0}), b.ints("one", {1})};
  std::set<std::string> rules;
  for (int round = 0; round < 2; ++round) {
    for (const ValueId place : places) {
      const Shape shape = place == places[0] ? Shape{4, 6} : Shape{6, 4};
      for (const ValueId value : values) {
        b.graph.outputs.push_back(b.op("Pad", {x, place, value}, shape));
      }
    }
  }
  for (const SumsAt sums : {SumsAt::kAnywhere, SumsAt::kBefore, SumsAt::kAnywhere}) {
    b.graph.outputs.push_back(b.op("Cast", {x}, {4, 4}, {{"to", std::int64_t{1}}}));
    b.graph.ops.back().sums = sums;
  }
  const GraphRules found = rules_of(b.graph).value();
  for (std::size_t o = 0; o < b.graph.ops.size(); ++o) {
    const RuleOf alone = rule_of(b.graph, b.graph.ops[o]).value();
    CHECK(found.rules[o] == alone.rule);
    rules.insert(to_text(alone.rule));
  }
  CHECK(rules.size() == 6);
}

TEST_CASE("ops of several steps are alike where the same inputs go with them", "[strategy]") {
  GraphWriter b;
  const Shape image = {1, 2, 8, 8};
  const auto conv = [&](ValueId x, const std::string& name) {
    return b.op("Conv", {x, b.parameter("w." + name, {2, 2, 3, 3})}, image,
                {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}},
                 {"kernel_shape", std::vector<std::int64_t>{3, 3}}},
                name);
  };
  const ValueId kept = b.op("Relu", {b.input("X", image)}, image, {}, "first");
  const ValueId one = conv(kept, "one");
  const ValueId two = conv(b.op("Relu", {one}, image, {}, "second"), "two");
  const ValueId three = conv(b.op("Relu", {two}, image, {}, "third"), "three");
  b.graph.outputs = {b.op("Add", {three, kept}, image, {}, "sum")};
  const std::vector<int> classes = rules_of(b.graph).value().class_of_op;
  const auto class_of = [&](const std::string& name) {
    for (std::size_t o = 0; o < b.graph.ops.size(); ++o) {
      if (b.graph.ops[o].name == name) return classes[o];
    }
    return -1;
  };
  CHECK(class_of("two") == class_of("three"));
  // What it reads is read again, so it stays beside the rows of neighbours.
  CHECK(class_of("one") != class_of("two"));
  CHECK(class_of("first") == class_of("second"));
}

TEST_CASE("readers know when a value is read", "[strategy]") {
  const Graph graph = diamond();
  const std::vector<Readers> readers = readers_of(graph);
  const auto of = [&](const std::string& name) {
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].name == name) return readers[v];
    }
    FAIL("no value " << name);
    return Readers{};
  };
  CHECK(of("x").uses == std::vector<Use>{{OpId(0), 0}, {OpId(2), 0}, {OpId(2), 1}});
  CHECK(of("x").count() == 3);
  CHECK(of("x").first == 0);
  CHECK(of("x").last == 2);
  CHECK(of("a_out").is_output);
  CHECK(of("a_out").count() == 2);
  CHECK(of("a_out").produced == 0);
  CHECK(of("a_out").first == 0);  // it leaves when it is produced
  CHECK(of("a_out").last == 3);   // and is kept until the end
  CHECK(of("b_out").produced == 1);
  CHECK(of("b_out").first == 3);
  CHECK(of("c_out").last == 3);
  CHECK(of("unused").count() == 0);
  CHECK(of("unused").first == 0);
  CHECK(of("unused").last == 0);
}

TEST_CASE("a graph without ops has readers", "[strategy]") {
  GraphWriter b;
  b.graph.outputs = {b.input("x", {2})};
  const std::vector<Readers> readers = readers_of(b.graph);
  CHECK(readers[0].is_output);
  CHECK(readers[0].last == 0);
}

TEST_CASE("specs follow from assignments", "[strategy]") {
  const Case c;
  const auto specs = op_specs_of(c.graph, c.rules, c.strategy);
  REQUIRE(specs.ok());
  CHECK(to_text((*specs)[0].outputs[0], c.mesh) == "[{ib},{nvlink}]");
  CHECK(to_text((*specs)[1].inputs[0], c.mesh) == "[{ib},{nvlink}]");
  CHECK(to_text((*specs)[1].outputs[0], c.mesh) == "[{ib},{}] +{nvlink}");
  CHECK(verify(c.graph, c.rules, c.strategy).ok());
}

TEST_CASE("random strategies are valid", "[strategy]") {
  const Graph graph = diamond();
  const GraphRules rules = rules_of(graph).value();
  const Mesh mesh = make_mesh(cluster_of({4}), {2, 2}).value();
  Random random(7);
  for (int i = 0; i < 50; ++i) {
    const Status status = verify(graph, rules, random_strategy(graph, rules, mesh, random));
    INFO((status.ok() ? "" : status.error().message));
    REQUIRE(status.ok());
  }
}

TEST_CASE("the verifier names what is wrong", "[strategy]") {
  Case c;
  const std::size_t x = 0, y = 3, z = 4;
  const auto refused = [&](auto change, const std::string& what) {
    Strategy strategy = c.strategy;
    change(strategy);
    says(verify(c.graph, c.rules, strategy), what);
  };
  refused([](Strategy& s) { s.assignments.pop_back(); }, "assigns 1");
  refused([](Strategy& s) { s.values.pop_back(); }, "the strategy 4");
  refused([](Strategy& s) { s.assignments[1].factor_of_axis.pop_back(); }, "'fc2' (MatMul)");
  refused([](Strategy& s) { s.assignments[1].factor_of_axis[0] = 99; }, "factor 99");
  refused([&](Strategy& s) { s.values[y].spec = replicated(2); }, "'fc1' (MatMul) leaves it as");
  refused([&](Strategy& s) { s.values[x].spec = replicated(3); }, "tensor 'X' [64,128]: spec");
  refused([&](Strategy& s) { s.values[x].spec.partial = {1}; }, "partial");
  refused([&](Strategy& s) { s.values[z].output.partial = {1}; }, "partial");
  refused([&](Strategy& s) { s.values[y].output = replicated(2); }, "must be its hub spec");
  refused(
      [&](Strategy& s) {
        s.values[y].hub = replicated(2);
        s.values[y].output = replicated(2);
      },
      "must be what the reader needs");
}

TEST_CASE("a constant cannot be stored in slices", "[strategy]") {
  GraphWriter b;
  const ValueId x = b.input("x", {4});
  const ValueId k = b.constant("k", {4});
  b.graph.outputs = {b.op("Add", {x, k}, {4})};
  const GraphRules rules = rules_of(b.graph).value();
  const Mesh mesh = make_mesh(cluster_of({2}), {2}).value();
  Random random(3);
  Strategy strategy = random_strategy(b.graph, rules, mesh, random);
  REQUIRE(verify(b.graph, rules, strategy).ok());
  strategy.values[k.index()].spec.dims[0] = {0};
  says(verify(b.graph, rules, strategy), "a constant lies whole");
}

}  // namespace autopar::strategy_test
