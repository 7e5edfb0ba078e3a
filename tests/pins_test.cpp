// Pins of tensors: each is kept by every searcher at the least cost there is, or refused in one
// sentence; counts that a ReduceScatter reaches; the meshes that pins imply.
#include <catch2/catch.hpp>
#include <set>

#include "graphs.hpp"
#include "search/build/spec_lists.hpp"
#include "search/meshes.hpp"

namespace autopar::pins_test {

using namespace testing;

namespace {

constexpr double kMostPlans = 2e5;

bool chance(Draw& draw, std::size_t one_in) { return draw.below(one_in) == 0; }

std::map<std::string, std::string> names_of(const Assignment& assignment, const Rule& rule,
                                            const Mesh& mesh) {
  std::map<std::string, std::string> names;
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    const int factor = assignment.factor_of_axis[a];
    if (factor < 0) continue;
    names[mesh.axes[a].name] = rule.factors[static_cast<std::size_t>(factor)].name;
  }
  return names;
}

// Some of what a plan decides, as a user would write it down.
Pins pins_of(const Graph& graph, const GraphRules& rules, const Strategy& plan, Draw& draw) {
  Pins pins;
  const auto specs = op_specs_of(graph, rules, plan).value();
  const std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    // How the outputs of the graph leave depends on whether their producer is pinned.
    if (!chance(draw, 4) || outputs.count(graph.ops[o].outputs[0]) != 0) continue;
    OpPin& pin = pins.ops[graph.ops[o].name];
    if (chance(draw, 2)) {
      pin.in_strategy = strategy_of(specs[o].inputs, plan.mesh);
    } else {
      pin.assignment = names_of(plan.assignments[o], rules.rules[o], plan.mesh);
    }
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (!chance(draw, 3) || graph.values[v].kind == ValueKind::kConstant) continue;
    const ValueSpecs& value = plan.values[v];
    ValuePin& pin = pins.values[graph.values[v].name];
    const std::size_t kind = draw.below(4);
    if (kind == 0 || kind == 3) pin.spec = to_text(value.spec, plan.mesh);
    if (kind == 1 || kind == 3) {
      pin.device_matrix = plan.mesh.sizes();
      pin.tensor_map = tensor_map(value.spec, plan.mesh);
    }
    if (kind >= 2) pin.hub_spec = to_text(value.hub, plan.mesh);
    if (kind == 2 && outputs.count(ValueId(static_cast<std::int64_t>(v))) != 0) {
      pin.output_spec = to_text(value.output, plan.mesh);
    }
  }
  return pins;
}

// Read off the plan alone.
bool keeps(const Graph& graph, const GraphRules& rules, const Strategy& plan, const Pins& pins) {
  const auto specs = op_specs_of(graph, rules, plan).value();
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto pin = pins.ops.find(graph.ops[o].name);
    if (pin == pins.ops.end()) continue;
    const auto& [assignment, in, out] = pin->second;
    if (assignment && *assignment != names_of(plan.assignments[o], rules.rules[o], plan.mesh)) {
      return false;
    }
    if (in && *in != strategy_of(specs[o].inputs, plan.mesh)) return false;
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const auto pin = pins.values.find(graph.values[v].name);
    if (pin == pins.values.end()) continue;
    const ValueSpecs& value = plan.values[v];
    const auto is = [&](const std::string& text, const Spec& spec) {
      return text.empty() || text == to_text(spec, plan.mesh);
    };
    if (!is(pin->second.spec, value.spec) || !is(pin->second.hub_spec, value.hub) ||
        !is(pin->second.output_spec, value.output)) {
      return false;
    }
    if (!pin->second.device_matrix.empty() &&
        tensor_map(value.spec, plan.mesh) != pin->second.tensor_map) {
      return false;
    }
  }
  return true;
}

// All plans of the problem without pins, one after the other.
double least_cost(const Graph& graph, const GraphRules& rules, const MeshProblem& built,
                  const Pins& pins) {
  const auto& nodes = built.problem.nodes;
  std::vector<int> choices(nodes.size(), 0);
  double best = kInfinity;
  while (true) {
    const double cost = evaluate(built.problem, choices).cost;
    if (cost < best && keeps(graph, rules, strategy_of(graph, built, choices), pins)) best = cost;
    std::size_t n = 0;
    while (n < nodes.size() && ++choices[n] == static_cast<int>(nodes[n].cost.size())) {
      choices[n++] = 0;
    }
    if (n == nodes.size()) return best;
  }
}

const ValueSpecs& specs_of(const Graph& graph, const Strategy& plan, const std::string& name) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].name == name) return plan.values[v];
  }
  FAIL("no value " << name);
  return plan.values[0];
}

// X [8,16] x W [16,32] -> H -> Relu -> R x V [32,8] -> Y, with R read by an Add as well.
Graph chain() {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 16});
  const ValueId h = b.op("MatMul", {x, b.parameter("W", {16, 32})}, {8, 32}, {}, "fc1");
  const ValueId r = b.op("Relu", {h}, {8, 32}, {}, "relu");
  const ValueId y = b.op("MatMul", {r, b.parameter("V", {32, 8})}, {8, 8}, {}, "fc2");
  const ValueId s = b.op("Add", {r, b.constant("one", {8, 32})}, {8, 32}, {}, "add");
  b.graph.outputs = {y, s};
  b.graph.name = "chain";
  return b.graph;
}

struct Chain {
  Graph graph = chain();
  GraphRules rules = rules_of(graph).value();
  Cluster cluster = small_cluster({4, 2});
  SearchRequest request{graph, rules, cluster};

  std::string refusal() {
    const auto found = search(request);
    REQUIRE(!found.ok());
    CHECK(found.error().code == ErrorCode::kInput);
    CHECK(found.error().message.size() < 400);
    CHECK(found.error().message.find('\n') == std::string::npos);
    return found.error().message;
  }
};

}  // namespace

TEST_CASE("pins that a plan keeps are kept by every searcher, and at the least cost", "[pins]") {
  int compared = 0, with_activations = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const Graph graph = seed % 2 == 0 ? random_graph(seed, 2 + static_cast<int>(seed % 3))
                                      : mixed_graph(seed, 2 + static_cast<int>(seed % 3));
    const auto rules = rules_of(graph);
    REQUIRE(rules.ok());
    const Cluster cluster = small_cluster(seed % 3 == 0 ? std::vector<std::int64_t>{2}
                                                        : std::vector<std::int64_t>{2, 2});
    SearchRequest request{graph, *rules, cluster};
    request.limit_memory = false;
    request.mesh = mesh_candidates(cluster, 2).back();
    const auto free = build_problem(request, *request.mesh);
    REQUIRE(free.ok());
    Draw draw{std::mt19937_64(seed)};
    std::vector<int> choices;
    for (const ProblemNode& node : free->problem.nodes) {
      choices.push_back(static_cast<int>(draw.below(node.cost.size())));
    }
    request.pins = pins_of(graph, *rules, strategy_of(graph, *free, choices), draw);
    for (const auto& [name, pin] : request.pins.values) with_activations += name[0] != 'w';
    CAPTURE(seed, to_text(graph));
    double least = 0;
    std::vector<std::string> all = {"rec", "auto", "propagate", "data_parallel", "replicate"};
    if (combinations(free->problem) <= kMostPlans) {
      least = least_cost(graph, *rules, *free, request.pins);
      ++compared;
      all.push_back("exhaustive");
    }
    const auto exact = search(request);
    INFO((exact.ok() ? std::string() : exact.error().message));
    REQUIRE(exact.ok());
    CHECK(keeps(graph, *rules, exact->strategy, request.pins));
    CHECK(exact->lower_bound == Approx(exact->cost.total()).epsilon(1e-9));
    if (least > 0) CHECK(exact->cost.total() == Approx(least).epsilon(1e-9));
    for (const std::string& name : all) {
      request.searcher = name;
      const auto found = search(request);
      INFO(name << ": " << (found.ok() ? std::string() : found.error().message));
      // No pins to start from.
      if (!found.ok() && found.error().code == ErrorCode::kUsage) continue;
      REQUIRE(found.ok());
      CHECK(keeps(graph, *rules, found->strategy, request.pins));
      CHECK(found->cost.total() >= exact->cost.total() * (1 - 1e-9));
    }
  }
  CHECK(compared >= 40);
  CHECK(with_activations >= 100);
}

TEST_CASE("a tensor pin that cannot be kept is refused in one sentence", "[pins]") {
  struct Refused {
    std::string tensor, field, text, expected;
  };
  const std::string made = "fc1_out", read = "relu_out", left = "fc2_out";
  const std::vector<Refused> cases = {
      {made, "spec", "nonsense", "expected '['"},
      {made, "hub_spec", "nonsense", "expected '['"},
      {made, "output_spec", "nonsense", "expected '['"},
      {"W", "hub_spec", "nonsense", "expected '['"},
      {made, "spec", "[{t1}]", "expected 2 dimensions"},
      {made, "spec", "[{ib},{}]", "no mesh axis 'ib'"},
      {made, "spec", "[{t1},{t1}]", "used twice"},
      {left, "spec", "[{},{t1,t0}] +{t9}", "t9"},
      {read, "spec", "[{},{t1}] +{t0}", "op 'relu' (Relu) leaves 'relu_out' as"},
      {made, "hub_spec", "[{},{t1}] +{t0}", "op 'relu' (Relu) takes 'fc1_out' as"},
      {made, "output_spec", "[{},{}]", "not an output of the model"},
      {left, "output_spec", "[{},{}] +{t1}", "must not be a partial sum"},
      {"W", "spec", "[{},{}] +{t1}", "must not be a partial sum"},
      {"one", "spec", "[{t1},{}]", "is a constant"},
      {"nowhere", "spec", "[{},{}]", "no such tensor"},
      {"fc1_ouT", "spec", "[{},{}]", "did you mean 'fc1_out'?"},
  };
  for (const Refused& c : cases) {
    for (const char* searcher : {"dp", "rec", "propagate", "data_parallel"}) {
      CAPTURE(c.tensor, c.field, c.text, searcher);
      Chain chain;
      chain.request.searcher = searcher;
      ValuePin& pin = chain.request.pins.values[c.tensor];
      (c.field == "spec"       ? pin.spec
       : c.field == "hub_spec" ? pin.hub_spec
                               : pin.output_spec) = c.text;
      const std::string message = chain.refusal();
      CAPTURE(message);
      CHECK(message.find("'" + c.tensor + "'") != std::string::npos);
      CHECK(message.find(c.expected) != std::string::npos);
    }
  }
}

TEST_CASE("pins that go against each other are refused", "[pins]") {
  const auto refused = [](const std::string& expected, const auto& pin) {
    Chain chain;
    pin(chain.request);
    const std::string message = chain.refusal();
    CAPTURE(message);
    CHECK(message.find(expected) != std::string::npos);
  };
  refused("disagree", [](SearchRequest& request) {
    request.pins.values["fc1_out"] = {"[{t1},{}]", "", "", {2, 4}, {{0}, {}}};
  });
  refused("as it is pinned", [](SearchRequest& request) {
    request.pins.ops["fc1"].in_strategy = {{8, 1}, {1, 1}};
    request.pins.values["fc1_out"].spec = "[{},{t1}]";
  });
  refused("as it is pinned", [](SearchRequest& request) {
    request.pins.ops["relu"].in_strategy = {{8, 1}};
    request.pins.values["fc1_out"].hub_spec = "[{},{t1}]";
  });
  refused("disagree", [](SearchRequest& request) {
    request.pins.values["fc2_out"].hub_spec = "[{t1},{}]";
    request.pins.values["fc2_out"].output_spec = "[{},{}]";
  });
  refused("is not the layout", [](SearchRequest& request) {
    request.inputs.kind = BoundaryLayout::Kind::kFull;
    request.pins.values["X"].spec = "[{t1},{}]";
  });
  refused("3 is no axis", [](SearchRequest& request) {
    request.pins.values["fc1_out"] = {"", "", "", {2, 4}, {{3}, {}}};
  });
  refused("16 devices", [](SearchRequest& request) {
    request.pins.values["fc1_out"] = {"", "", "", {4, 4}, {{1}, {}}};
  });
}

TEST_CASE("the next value of an input leaves as that is pinned", "[pins]") {
  GraphWriter b;
  const ValueId w = b.parameter("W", {8, 8});
  const ValueId next = b.op("Relu", {w}, {8, 8}, {}, "update");
  b.graph.values[next.index()].name = "new.W";
  b.graph.outputs = {next};
  const auto rules = rules_of(b.graph);
  const Cluster cluster = small_cluster({4});
  SearchRequest request{b.graph, *rules, cluster};
  request.pins.values["new.W"].output_spec = "[{},{t0}]";
  for (const char* searcher : {"dp", "rec", "replicate"}) {
    request.searcher = searcher;
    const auto found = search(request);
    REQUIRE(found.ok());
    const Mesh& mesh = found->strategy.mesh;
    CHECK(to_text(specs_of(b.graph, found->strategy, "W").spec, mesh) == "[{},{t0}]");
    CHECK(to_text(specs_of(b.graph, found->strategy, "new.W").output, mesh) == "[{},{t0}]");
  }
  request.pins.values["W"].spec = "[{t0},{}]";
  const auto refused = search(request);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.find("disagree") != std::string::npos);
}

TEST_CASE("of the ways to an out_strategy the search takes the cheapest", "[pins]") {
  // The product is asked for in 4 x 2 parts. Splitting m by 4 and n by 2 needs no sums; with m by 2
  // in the pin a sum over two devices must be scattered, and the other axis is free.
  GraphWriter b;
  const ValueId x = b.input("X", {256, 64});
  const ValueId h = b.op("MatMul", {x, b.parameter("W", {64, 256})}, {256, 256}, {}, "mm");
  b.graph.outputs = {b.op("Relu", {h}, {256, 256}, {}, "relu")};
  const auto rules = rules_of(b.graph);
  const Cluster cluster = small_cluster({2, 2, 2});
  SearchRequest request{b.graph, *rules, cluster};
  request.limit_memory = false;
  request.pins.ops["mm"].in_strategy = {{2, 2}, {2, 1}};
  request.pins.ops["mm"].out_strategy = {{4, 1}};
  const auto found = search(request);
  REQUIRE(found.ok());
  // Every assignment with these counts, one after the other, read in every layout of that count.
  double least = kInfinity;
  const Mesh mesh = mesh_candidates(cluster, 3).back();
  for (const Assignment& a : candidates(rules->rules[0], mesh)) {
    SearchRequest one = request;
    one.mesh = mesh;
    one.pins.ops["mm"] = {names_of(a, rules->rules[0], mesh), {{{2, 2}, {2, 1}}}, {}};
    for (const Spec& spec : canonical_specs({256, 256}, mesh)) {
      if (split_counts(spec, mesh) != std::vector<std::int64_t>{4, 1}) continue;
      one.pins.values["mm_out"].hub_spec = to_text(spec, mesh);
      const auto cost = search(one);
      if (cost.ok()) least = std::min(least, cost->cost.total());
    }
  }
  REQUIRE(least < kInfinity);
  CHECK(found->cost.total() == Approx(least).epsilon(1e-9));
  const auto specs = op_specs_of(b.graph, *rules, found->strategy).value();
  CHECK(strategy_of(specs[1].inputs, found->strategy.mesh)[0] == std::vector<std::int64_t>{4, 1});
}

TEST_CASE("pins imply meshes of more axes", "[pins]") {
  GraphWriter b;
  const ValueId x = b.input("X", {4, 4, 8, 8}), y = b.input("Y", {4, 4, 8, 8});
  b.graph.outputs = {b.op("MatMul", {x, y}, {4, 4, 8, 8}, {}, "mm")};
  const auto rules = rules_of(b.graph);
  const Cluster cluster = small_cluster({16});
  for (const char* searcher : {"dp", "rec", "auto", "propagate"}) {
    SearchRequest request{b.graph, *rules, cluster};
    request.searcher = searcher;
    request.limit_memory = false;
    // Four loop dimensions by two.
    request.pins.ops["mm"].in_strategy = {{2, 2, 2, 1}, {2, 2, 1, 2}};
    auto found = search(request);
    INFO(searcher << ": " << (found.ok() ? std::string() : found.error().message));
    REQUIRE(found.ok());
    CHECK(to_text(found->strategy.mesh) == "2x2x2x2");
    request.max_axes = 3;
    CHECK(!search(request).ok());
    request.max_axes = 0;
    request.pins = {};
    // The coarsest mesh on which both matrices lie.
    request.pins.values["X"] = {"", "", "", {2, 8}, {{1}, {}, {}, {}}};
    request.pins.values["Y"] = {"", "", "", {8, 1, 2}, {{0}, {}, {}, {}}};
    found = search(request);
    REQUIRE(found.ok());
    const Mesh& mesh = found->strategy.mesh;
    CHECK(axes_size(mesh, specs_of(b.graph, found->strategy, "X").spec.dims[0]) == 2);
    CHECK(specs_of(b.graph, found->strategy, "X").spec.dims[0] == AxisList{0});
    CHECK(specs_of(b.graph, found->strategy, "Y").spec.dims[0] == AxisList{mesh.rank() - 1});
  }
}

TEST_CASE("every searcher asks for the same meshes", "[pins]") {
  Chain chain;
  const auto texts = [&] {
    std::vector<std::string> found;
    for (const Mesh& mesh : meshes_of(chain.request)) found.push_back(to_text(mesh));
    return found;
  };
  using Texts = std::vector<std::string>;
  CHECK(texts() == Texts{"2x4", "2x2x2"});
  chain.cluster = small_cluster({8});
  CHECK(texts() == Texts{"8", "4x2", "2x2x2"});
  chain.request.pins.ops["fc1"].assignment.emplace();
  CHECK(texts() == Texts{"8", "4x2", "2x2x2"});
  chain.request.pins.ops["fc1"] = {{}, {{{2, 1}, {1, 1}}}, {}};
  CHECK(texts() == Texts{"8", "2x4", "4x2", "2x2x2"});
  chain.request.pins = {};
  chain.request.pins.values["X"] = {"", "", "", {8}, {{0}, {}}};
  CHECK(texts() == Texts{"8", "2x4", "4x2", "2x2x2"});
  chain.request.max_axes = 1;
  chain.request.pins.values["X"] = {"", "", "", {2, 4}, {{1}, {}}};
  CHECK(texts() == Texts{"8", "2x4"});
  chain.request.mesh = make_mesh(chain.cluster, {2, 2, 2}).value();
  CHECK(texts() == Texts{"2x2x2"});
}

TEST_CASE("a layout of all inputs is about data, not parameters", "[pins]") {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 4096});
  b.graph.outputs = {b.op("MatMul", {x, b.parameter("W", {4096, 4096})}, {8, 4096}, {}, "mm")};
  const auto rules = rules_of(b.graph);
  const Cluster cluster = small_cluster({4});
  for (const auto kind : {BoundaryLayout::Kind::kFull, BoundaryLayout::Kind::kDataParallel}) {
    SearchRequest request{b.graph, *rules, cluster};
    request.inputs.kind = kind;
    const auto found = search(request);
    REQUIRE(found.ok());
    CHECK(!is_replicated(specs_of(b.graph, found->strategy, "W").spec));
    const Spec expected = kind == BoundaryLayout::Kind::kFull
                              ? replicated(2)
                              : Spec{{AxisList{0}, {}}, {}, Reduction::kSum};
    CHECK(specs_of(b.graph, found->strategy, "X").spec.dims.size() == expected.dims.size());
    CHECK(is_replicated(specs_of(b.graph, found->strategy, "X").spec) == is_replicated(expected));
    request.inputs.parameters_too = true;
    const auto whole = search(request);
    REQUIRE(whole.ok());
    CHECK((kind != BoundaryLayout::Kind::kFull ||
           is_replicated(specs_of(b.graph, whole->strategy, "W").spec)));
  }
}

TEST_CASE("split counts that cannot be kept say which loop dimension disagrees", "[pins]") {
  using Counts = std::vector<std::vector<std::int64_t>>;
  const std::vector<std::pair<Counts, std::string>> cases = {
      {{{3, 1}, {1, 1}}, "dimension 0 of input 0 is 8, which cannot be cut into 3 equal parts"},
      {{{1, 4}, {2, 1}}, "are one loop dimension, k, and are cut alike; found 2 and 4 parts"},
      {{{8, 1}, {1, 8}}, "m=8, n=8 takes 64 devices, and the cluster has 8"},
      {{{1, 1, 1}, {1, 1}}, "has 3 dimensions"},
      {{{1, 1}, {1, 1}, {1}}, "the op has 2 inputs, the strategy has 3"},
  };
  for (const auto& [counts, expected] : cases) {
    for (const char* searcher : {"dp", "rec", "auto"}) {
      Chain chain;
      chain.request.searcher = searcher;
      chain.request.pins.ops["fc1"].in_strategy = counts;
      const std::string message = chain.refusal();
      CAPTURE(message);
      CHECK(message.find("op 'fc1' (MatMul): in_strategy ") == 0);
      CHECK(message.find(expected) != std::string::npos);
    }
  }
}

TEST_CASE("what no mesh can keep is said before what some cannot", "[pins]") {
  Chain chain;
  chain.request.pins.ops["fc1"].in_strategy = {{2, 2}, {2, 2}};  // needs three axes
  chain.request.pins.ops["fc2"].in_strategy = {{1, 1}, {1, 7}};
  CHECK(chain.refusal().find("op 'fc2' (MatMul)") == 0);
}

}  // namespace autopar::pins_test
