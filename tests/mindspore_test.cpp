// MindSpore's cost model: its strategies, its meshes, its redistribution lists and their prices.
#include "autopar/mindspore.hpp"

#include <catch2/catch.hpp>

#include "autopar/search.hpp"
#include "mindspore_nets.hpp"

namespace autopar::mindspore_test {

using namespace testing::mindspore_nets;

TEST_CASE("among equal plans the first strategies count", "[mindspore]") {
  Net net;
  ValueId x = net.input("x", {4, 64, 64});
  for (const char* name : {"a", "b", "c"}) x = net.same(name, "Relu", {x});
  const Graph graph = net.done({x});
  const Cluster cluster = devices(8);
  const auto rules = rules_of(graph);
  REQUIRE(rules.ok());
  SearchRequest request{graph, *rules, cluster};
  request.cost_model = "mindspore";
  const auto outcome = search(request);
  REQUIRE(outcome.ok());
  const auto specs = op_specs_of(graph, *rules, outcome->strategy);
  REQUIRE(specs.ok());
  for (const OpSpecs& s : *specs) {
    CHECK(strategy_of(s.inputs, outcome->strategy.mesh) == Counts{{1, 1, 8}});
  }
  CHECK(outcome->cost.total() == 3 * 4 * 64 * 64 * 4 / 8);
}

// Only a split of the summed dimension uses all devices, and the bias then goes into one of the
// summands.
TEST_CASE("a bias that enters a sum is stored as no sum", "[mindspore]") {
  Net net;
  const ValueId x = net.input("x", {1, 8, 5, 5}), w = net.parameter("w", {3, 8, 1, 1});
  const ValueId bias = net.parameter("b", {3});
  const Graph graph = net.done({net.op("conv", "Conv", {x, w, bias}, {1, 3, 5, 5})});
  const Cluster cluster = devices(8);
  const GraphRules rules = rules_of(graph).value();
  SearchRequest request{graph, rules, cluster};
  request.cost_model = "mindspore_all";
  const auto outcome = search(request);
  REQUIRE(outcome.ok());
  const auto specs = op_specs_of(graph, rules, outcome->strategy);
  REQUIRE(specs.ok());
  CHECK((*specs)[0].inputs[0].dims[1].size() == 3);
  CHECK((*specs)[0].inputs[2].partial.size() == 3);
  CHECK(is_replicated(outcome->strategy.values[bias.index()].spec));
}

// Counts of its step generation tests.
TEST_CASE("as many strategies as MindSpore enumerates", "[mindspore]") {
  const Cluster cluster = devices(8);
  const Mesh mesh = prime_meshes(cluster).front();
  const auto count = [&](const Graph& graph, DeviceUse use) {
    MindsporeWeights weights;
    weights.devices = use;
    const auto rule = rule_of(graph, graph.ops[0]);
    REQUIRE(rule.ok());
    return MindsporeModel(cluster, mesh, weights).choices(graph.ops[0], rule->rule).size();
  };
  Net relu, matmul;
  relu.same("r", "Relu", {relu.input("x", {64, 32})});
  matmul.matmul("m", matmul.input("x", {64, 8}), matmul.input("y", {8, 32}));
  CHECK(count(relu.graph, DeviceUse::kAny) == 10);
  CHECK(count(relu.graph, DeviceUse::kAll) == 4);
  CHECK(count(relu.graph, DeviceUse::kAllOrNone) == 5);
  CHECK(count(matmul.graph, DeviceUse::kAny) == 20);
  CHECK(count(matmul.graph, DeviceUse::kAll) == 10);
}

TEST_CASE("meshes of prime axes", "[mindspore]") {
  const auto texts = [](std::int64_t count) {
    std::vector<std::string> found;
    for (const Mesh& mesh : prime_meshes(devices(count))) found.push_back(to_text(mesh));
    return found;
  };
  CHECK(texts(8) == std::vector<std::string>{"2x2x2"});
  CHECK(texts(12) == std::vector<std::string>{"2x2x3", "2x3x2", "3x2x2"});
  CHECK(texts(1) == std::vector<std::string>{"1"});
}

// All pairs of tensor maps of 2x2x2 elements on 2x2x2 devices (T-RED 11): how many operators.
TEST_CASE("operator lists are as long as MindSpore's", "[mindspore]") {
  const Cluster cluster = devices(8);
  const Mesh mesh = prime_meshes(cluster).front();
  MindsporeModel model(cluster, mesh);
  std::vector<Spec> maps = {replicated(3)};
  for (int axis = 0; axis < 3; ++axis) {
    const std::size_t before = maps.size();
    for (std::size_t m = 0; m < before; ++m) {
      for (std::size_t d = 0; d < 3; ++d) {
        if (!maps[m].dims[d].empty()) continue;
        maps.push_back(maps[m]);
        maps.back().dims[d] = {axis};
      }
    }
  }
  CHECK(maps.size() == 34);
  std::map<std::size_t, int> lengths;
  for (const Spec& from : maps) {
    for (const Spec& to : maps) {
      if (from == to) continue;
      ++lengths[model.reshard_steps({2, 2, 2}, DType::kFloat32, from, to).size()];
    }
  }
  CHECK(lengths == std::map<std::size_t, int>{{1, 180}, {2, 450}, {3, 444}, {4, 48}});
}

// By hand from the formulas, 8 devices, [64,32] floats.
TEST_CASE("redistributions cost what MindSpore says", "[mindspore]") {
  const Cluster cluster = devices(8);
  const Mesh mesh = prime_meshes(cluster).front();
  MindsporeModel model(cluster, mesh);
  const auto price = [&](const Spec& from, const Spec& to, DType dtype = DType::kFloat32) {
    return model.reshard_prices({64, 32}, dtype, {from}, {to})[0][0].seconds;
  };
  const Spec whole = replicated(2), rows{{{0, 1, 2}, {}}, {}}, columns{{{}, {0, 1, 2}}, {}};
  const Spec four{{{0, 1}, {}}, {}};
  const double full = 64 * 32 * 4, part = full / 8;
  CHECK(price(whole, rows) == full);
  CHECK(price(whole, whole) == 0);
  // 4 parts of a dimension become 8: the dimension is cut in two, which takes a Reshape.
  CHECK(price(four, rows) == 3 * full / 4);
  // Sums up to 2048 bytes count as 3072, larger ones 1024 more.
  CHECK(price(rows, whole) == part + 400 * (0.5 * part * 8 + 1024 + 3072));
  CHECK(price(columns, whole) == part + 2 * part * 8 + 400 * (0.5 * part * 8 + 1024 + 3072));
  CHECK(price(rows, columns) == part + 400 * (3072 + 3072));
  CHECK(price(rows, columns, DType::kBool) == kInfinity);
  // An op pays for its own partial sums.
  Spec partial = rows;
  partial.dims[0] = {0, 1};
  partial.partial = {2};
  CHECK(price(partial, four) == 0);
}

TEST_CASE("only products with parameters pay for gradients, whatever else is like them",
          "[mindspore]") {
  const Cluster cluster = devices(4);
  Net net;
  const ValueId x = net.input("x", {64, 64});
  const ValueId h = net.matmul("weighted", x, net.parameter("w", {64, 64}));
  net.graph.outputs = {net.matmul("square", h, h)};
  const GraphRules rules = rules_of(net.graph).value();
  CHECK(rules.class_of_op[0] != rules.class_of_op[1]);
  // A pinned op is priced by itself in a search, and as its class is in the claim.
  for (const char* pinned : {"weighted", "square"}) {
    SearchRequest request{net.graph, rules, cluster};
    request.cost_model = "mindspore";
    request.pins.ops[pinned].in_strategy = Counts{{4, 1}, {1, 1}};
    const auto found = search(request);
    REQUIRE(found.ok());
    CHECK(found->lower_bound == Approx(found->cost.total()));
  }

  // Through an Identity a product has the price that it has without.
  Net behind;
  const ValueId w = behind.parameter("w", {64, 64});
  const ValueId y = behind.input("y", {64, 64});
  behind.graph.outputs = {behind.matmul("product", y, behind.same("handed", "Identity", {w}))};
  const GraphRules its_rules = rules_of(behind.graph).value();
  const Mesh mesh = prime_meshes(cluster).front();
  MindsporeModel model(cluster, mesh);
  const auto price = [&](const Graph& graph, const GraphRules& of, std::size_t o, int factor) {
    const Assignment split{std::vector<int>(mesh.axes.size(), factor)};
    const OpSpecs specs = specs_of(of.rules[o], split, mesh).value();
    return model.op_price(graph, graph.ops[o], of.rules[o], split, specs)->total();
  };
  for (int factor = 0; factor < 3; ++factor) {
    CHECK(price(behind.graph, its_rules, 1, factor) == price(net.graph, rules, 0, factor));
  }
  CHECK(price(net.graph, rules, 0, 0) > price(net.graph, rules, 1, 0));
  for (int factor = -1; factor < 2; ++factor) CHECK(price(behind.graph, its_rules, 0, factor) == 0);
}

}  // namespace autopar::mindspore_test
