// Sharding propagation: hand-made graphs with known answers, conflicts, and random graphs beside
// the exact search.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
#endif

#include <set>

#include "autopar/report.hpp"
#include "graphs.hpp"
#include "search/propagate/near_pins.hpp"
#include "strategies.hpp"

namespace autopar::propagate_test {

using namespace testing;

namespace {

using Counts = std::vector<std::vector<std::int64_t>>;

Pins pins_of(const std::map<std::string, Counts>& in_strategies) {
  Pins pins;
  for (const auto& [name, counts] : in_strategies) pins.ops[name].in_strategy = counts;
  return pins;
}

// A propagation on one mesh of 2 or more devices per axis; outermost axis first.
struct Propagated {
  Graph graph;
  GraphRules rules;
  Cluster cluster;
  SearchRequest request;
  SearchOutcome outcome;

  Propagated(Graph g, const std::vector<std::int64_t>& sizes)
      : graph(std::move(g)),
        rules(rules_of(graph).value()),
        cluster(cluster_of({sizes.rbegin(), sizes.rend()})),
        request{graph, rules, cluster} {
    request.searcher = "propagate";
    request.mesh = make_mesh(cluster, sizes).value();
  }
  Propagated(const Propagated&) = delete;

  Propagated& run() {
    auto found = search(request);
    INFO((found ? std::string() : found.error().message));
    REQUIRE(found.ok());
    outcome = std::move(*found);
    REQUIRE(outcome.propagation.has_value());
    return *this;
  }
  Propagated& run(const std::map<std::string, Counts>& in_strategies) {
    request.pins = pins_of(in_strategies);
    return run();
  }
  Counts counts(const std::string& op) const {
    const auto specs = op_specs_of(graph, rules, outcome.strategy).value();
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].name == op) return strategy_of(specs[o].inputs, outcome.strategy.mesh);
    }
    return {};
  }
  std::string spec(const std::string& value) const {
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].name == value) {
        return to_text(outcome.strategy.values[v].spec, outcome.strategy.mesh);
      }
    }
    return "";
  }
  const std::vector<Conflict>& conflicts() const { return outcome.propagation->conflicts; }
};

std::map<std::string, Attribute> perm(const std::vector<std::int64_t>& order) {
  return {{"perm", order}};
}

// Large enough for bytes to count more than latencies.
Graph mlp() {
  GraphWriter b;
  const ValueId x = b.input("X", {8192, 1024});
  const ValueId w = b.parameter("W", {1024, 4096});
  const ValueId v = b.parameter("V", {4096, 1024});
  const ValueId h = b.op("MatMul", {x, w}, {8192, 4096}, {}, "fc1");
  const ValueId r = b.op("Relu", {h}, {8192, 4096}, {}, "relu");
  const ValueId z = b.op("MatMul", {r, v}, {8192, 1024}, {}, "fc2");
  b.graph.outputs = {z};
  return b.graph;
}

}  // namespace

TEST_CASE("one pinned matmul makes the Megatron MLP", "[propagate]") {
  Propagated p(mlp(), {4});
  p.run({{"fc1", {{1, 1}, {1, 4}}}});
  CHECK(p.counts("relu") == Counts{{1, 4}});
  CHECK(p.counts("fc2") == Counts{{1, 4}, {4, 1}});
  CHECK(p.spec("W") == "[{},{nvlink}]");
  CHECK(p.spec("V") == "[{nvlink},{}]");
  CHECK(p.conflicts().empty());
  CHECK(p.outcome.propagation->seeds == std::vector<std::string>{"op 'fc1'"});
  CHECK(p.outcome.propagation->reached == 3);
  // The other way round: backwards from the second one.
  p.run({{"fc2", {{1, 4}, {4, 1}}}});
  CHECK(p.counts("relu") == Counts{{1, 4}});
  CHECK(p.counts("fc1") == Counts{{1, 1}, {1, 4}});
  CHECK(p.conflicts().empty());
}

TEST_CASE("whole outputs cost one reduction", "[propagate]") {
  Propagated p(mlp(), {4});
  p.request.outputs.kind = BoundaryLayout::Kind::kFull;
  p.run({{"fc1", {{1, 1}, {1, 4}}}});
  CHECK(p.counts("fc2") == Counts{{1, 4}, {4, 1}});
  CHECK(p.outcome.propagation->breadth_first.reshards == 1);
  CHECK(p.conflicts().empty());
}

TEST_CASE("Z = (X W) V", "[propagate]") {
  const auto run = [](const std::vector<std::int64_t>& sizes,
                      const std::map<std::string, Counts>& pins) {
    auto p = std::make_unique<Propagated>(two_matmuls(), sizes);
    p->run(pins);
    return p;
  };
  CHECK(run({4}, {{"fc1", {{4, 1}, {1, 1}}}})->counts("fc2") == Counts{{4, 1}, {1, 1}});
  CHECK(run({4}, {{"fc1", {{1, 1}, {1, 4}}}})->counts("fc2") == Counts{{1, 4}, {4, 1}});
  CHECK(run({4}, {{"fc2", {{4, 1}, {1, 1}}}})->counts("fc1") == Counts{{4, 1}, {1, 1}});

  const auto gather = run({4}, {{"fc1", {{4, 1}, {1, 1}}}, {"fc2", {{1, 1}, {1, 4}}}});
  REQUIRE(gather->conflicts().size() == 1);
  const Conflict& c = gather->conflicts()[0];
  CHECK(c.kind == Conflict::Kind::kPins);
  CHECK(c.tensor == "fc1_out");
  CHECK(c.from.where == "fc1");
  CHECK(c.from.spec == "[{nvlink},{}]");
  CHECK(c.from.because == "pinned");
  CHECK(c.to.where == "fc2");
  CHECK(c.to.spec == "[{},{}]");
  CHECK(c.to.because == "pinned");
  CHECK(c.steps == std::vector<std::string>{"AllGather {nvlink} 0"});
  CHECK(c.seconds == Approx(gather->outcome.cost.communication()));
  CHECK(c.sent_bytes == Approx(3 * 16 * 256 * 4));

  const auto exchange = run({4}, {{"fc1", {{1, 1}, {1, 4}}}, {"fc2", {{4, 1}, {1, 1}}}});
  REQUIRE(exchange->conflicts().size() == 1);
  CHECK(exchange->conflicts()[0].steps == std::vector<std::string>{"AllToAll {nvlink} 0 1"});

  const auto none = run({2, 2}, {{"fc1", {{2, 1}, {1, 2}}}, {"fc2", {{2, 2}, {2, 1}}}});
  CHECK(none->conflicts().empty());
  CHECK(none->outcome.propagation->breadth_first.reshards == 1);  // the reduction at the end
}

TEST_CASE("an op with several inputs waits for those that are to come", "[propagate]") {
  GraphWriter b;
  const ValueId x = b.input("x", {128, 96});
  const ValueId y = b.input("y", {128, 96});
  const ValueId alpha = b.input("alpha", {128, 96});
  const ValueId beta = b.input("beta", {96, 1});
  const ValueId ra = b.op("Relu", {alpha}, {128, 96}, {}, "relu_alpha");
  const ValueId rb = b.op("Relu", {beta}, {96, 1}, {}, "relu_beta");
  const ValueId sum = b.op("Add", {x, y}, {128, 96}, {}, "add");
  const ValueId product = b.op("MatMul", {sum, rb}, {128, 1}, {}, "matmul");
  b.graph.outputs = {b.op("Div", {product, ra}, {128, 96}, {}, "div")};
  Propagated p(b.graph, {4, 2});
  for (const char* name : {"x", "y", "alpha"}) p.request.pins.values[name].spec = "[{ib},{nvlink}]";
  p.run();
  CHECK(p.counts("add") == Counts{{4, 2}, {4, 2}});
  CHECK(p.counts("matmul") == Counts{{4, 2}, {2, 1}});
  CHECK(p.counts("relu_beta") == Counts{{2, 1}});
  CHECK(p.counts("div") == Counts{{4, 1}, {4, 2}});
}

TEST_CASE("producers follow their readers", "[propagate]") {
  GraphWriter b;
  const ValueId x = b.input("x", {128, 96});
  const ValueId y = b.op("Relu", {b.input("y", {96, 96})}, {96, 96}, {}, "relu");
  b.graph.outputs = {b.op("MatMul", {x, y}, {128, 96}, {}, "matmul")};
  Propagated p(b.graph, {4, 2});
  p.run({{"matmul", {{4, 2}, {2, 1}}}});
  CHECK(p.counts("relu") == Counts{{2, 1}});
}

TEST_CASE("a diamond follows one pin; two pins meet in it", "[propagate]") {
  GraphWriter b;
  const ValueId x = b.input("x", {64, 64});
  const ValueId h = b.op("Relu", {x}, {64, 64}, {}, "top");
  const ValueId left = b.op("Tanh", {h}, {64, 64}, {}, "left");
  const ValueId right = b.op("Sigmoid", {h}, {64, 64}, {}, "right");
  const ValueId sum = b.op("Add", {left, right}, {64, 64}, {}, "bottom");
  b.graph.outputs = {b.op("Exp", {sum}, {64, 64}, {}, "end")};
  Propagated p(b.graph, {4});
  p.run({{"top", {{4, 1}}}});
  CHECK(p.counts("left") == Counts{{4, 1}});
  CHECK(p.counts("bottom") == Counts{{4, 1}, {4, 1}});
  CHECK(p.counts("end") == Counts{{4, 1}});
  CHECK(p.conflicts().empty());

  p.run({{"left", {{4, 1}}}, {"right", {{1, 4}}}});
  REQUIRE(!p.conflicts().empty());
  bool exchanged = false;
  for (const Conflict& c : p.conflicts()) {
    CHECK(c.kind == Conflict::Kind::kMeeting);
    exchanged |= c.from.where == "right" && c.to.where == "bottom" &&
                 c.to.because == "follows op 'left'" &&
                 c.steps == std::vector<std::string>{"AllToAll {nvlink} 0 1"};
  }
  CHECK(exchanged);
}

TEST_CASE("heads of a reshape follow, or the reshape says that it cannot", "[propagate]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8, 16, 64});
  const ValueId q = b.op("MatMul", {x, b.parameter("W", {64, 64})}, {8, 16, 64}, {}, "q");
  const ValueId heads =
      b.op("Reshape", {q, b.ints("shape", {8, 16, 4, 16})}, {8, 16, 4, 16}, {}, "heads");
  b.graph.outputs = {b.op("Transpose", {heads}, {8, 4, 16, 16}, perm({0, 2, 1, 3}), "transpose")};
  Propagated four(b.graph, {4});
  four.run({{"q", {{1, 1, 1}, {1, 4}}}});
  CHECK(four.counts("transpose") == Counts{{1, 1, 4, 1}});
  CHECK(four.conflicts().empty());
  // Backwards, too.
  four.run({{"transpose", {{1, 1, 4, 1}}}});
  CHECK(four.counts("q") == Counts{{1, 1, 1}, {1, 4}});
  CHECK(four.conflicts().empty());

  // 8 devices on one axis cannot share 4 heads.
  Propagated eight(b.graph, {8});
  eight.run({{"q", {{1, 1, 1}, {1, 8}}}});
  REQUIRE(eight.conflicts().size() == 1);
  CHECK(eight.conflicts()[0].kind == Conflict::Kind::kRule);
  CHECK(eight.conflicts()[0].from.where == "q");
  CHECK(eight.conflicts()[0].to.where == "heads");
  CHECK(eight.conflicts()[0].to.because == "follows op 'q'");
  // Two axes can: the major one splits the heads, the minor one what is in a head.
  Propagated grid(b.graph, {4, 2});
  grid.run({{"q", {{1, 1, 1}, {1, 8}}}});
  CHECK(grid.counts("transpose") == Counts{{1, 1, 4, 2}});
  CHECK(grid.conflicts().empty());
}

TEST_CASE("readers of one parameter agree on it", "[propagate]") {
  GraphWriter b;
  const ValueId table = b.parameter("E", {128, 512});
  b.graph.outputs.push_back(
      b.op("MatMul", {b.input("a", {64, 128}), table}, {64, 512}, {}, "first"));
  b.graph.outputs.push_back(
      b.op("MatMul", {b.input("b", {64, 128}), table}, {64, 512}, {}, "second"));
  Propagated p(b.graph, {4});
  p.run({{"first", {{1, 1}, {1, 4}}}});
  CHECK(p.counts("second") == Counts{{1, 1}, {1, 4}});
  CHECK(p.spec("E") == "[{},{nvlink}]");
  CHECK(p.outcome.propagation->unreached == 0);
  CHECK(p.conflicts().empty());
  // Both pinned, and not alike: the parameter is resharded for one of them.
  p.run({{"first", {{1, 1}, {1, 4}}}, {"second", {{1, 4}, {4, 1}}}});
  REQUIRE(!p.conflicts().empty());
  for (const Conflict& c : p.conflicts()) {
    CHECK(c.kind == Conflict::Kind::kPins);
    CHECK(c.tensor == "E");
    const std::set<std::string> ends = {c.from.where, c.to.where};
    CHECK((ends == std::set<std::string>{"first", "second"}));
    CHECK(c.from.spec == (c.from.where == "first" ? "[{},{nvlink}]" : "[{nvlink},{}]"));
    CHECK(c.to.spec == (c.to.where == "first" ? "[{},{nvlink}]" : "[{nvlink},{}]"));
  }
}

TEST_CASE("a shared embedding table", "[propagate]") {
  GraphWriter b;
  const ValueId table = b.parameter("E", {32768, 1024});
  const ValueId ids = b.input("ids", {64}, DType::kInt64);
  const ValueId h = b.op("Gather", {table, ids}, {64, 1024}, {}, "embed");
  b.graph.values[h.index()].dtype = DType::kFloat32;
  const ValueId r = b.op("Relu", {h}, {64, 1024}, {}, "relu");
  const ValueId t = b.op("Transpose", {table}, {1024, 32768}, perm({1, 0}), "transpose");
  b.graph.outputs = {b.op("MatMul", {r, t}, {64, 32768}, {}, "head")};
  Propagated p(b.graph, {4});
  p.run({{"head", {{1, 1}, {1, 4}}}});  // vocabulary-parallel
  CHECK(p.counts("transpose") == Counts{{4, 1}});
  CHECK(p.spec("E") == "[{nvlink},{}]");
  CHECK(p.outcome.propagation->unreached == 0);
}

TEST_CASE("a chain of convolutions follows the batch", "[propagate]") {
  const std::vector<std::int64_t> pads = {1, 1, 1, 1}, kernel = {3, 3}, two = {2, 2};
  GraphWriter b;
  const ValueId x = b.input("x", {32, 16, 64, 64});
  const ValueId r = b.op("Relu", {x}, {32, 16, 64, 64}, {}, "relu");
  const ValueId c = b.op("Conv", {r, b.parameter("k", {8, 16, 3, 3})}, {32, 8, 64, 64},
                         {{"pads", pads}, {"kernel_shape", kernel}}, "conv");
  const ValueId n = b.op("BatchNormalization",
                         {c, b.parameter("s", {8}), b.parameter("o", {8}), b.parameter("m", {8}),
                          b.parameter("v", {8})},
                         {32, 8, 64, 64}, {}, "norm");
  b.graph.outputs = {
      b.op("MaxPool", {n}, {32, 8, 32, 32}, {{"kernel_shape", two}, {"strides", two}}, "pool")};
  Propagated p(b.graph, {8});
  p.run({{"relu", {{8, 1, 1, 1}}}});
  CHECK(p.counts("conv") == Counts{{8, 1, 1, 1}, {1, 1, 1, 1}});
  CHECK(p.counts("norm") == Counts{{8, 1, 1, 1}, {1}, {1}, {1}, {1}});
  CHECK(p.counts("pool") == Counts{{8, 1, 1, 1}});
  CHECK(p.conflicts().empty());
}

TEST_CASE("what no pin reaches", "[propagate]") {
  GraphWriter b;
  b.graph.outputs.push_back(b.op("Relu", {b.input("x", {64, 64})}, {64, 64}, {}, "here"));
  b.graph.outputs.push_back(b.op("Relu", {b.input("y", {64, 64})}, {64, 64}, {}, "there"));
  Propagated p(b.graph, {4});
  p.run({{"here", {{1, 4}}}});
  CHECK(p.outcome.propagation->reached == 1);
  CHECK(p.outcome.propagation->unreached == 1);
  CHECK(p.counts("there") == Counts{{4, 1}});
  p.request.unreached = Fill::kReplicate;
  CHECK(p.run().counts("there") == Counts{{1, 1}});
  p.request.unreached = Fill::kSearch;
  CHECK(p.run().counts("there") != Counts{{1, 1}});
  CHECK(p.counts("here") == Counts{{1, 4}});
}

TEST_CASE("layouts of inputs are pins, too; nothing at all is refused", "[propagate]") {
  Propagated p(mlp(), {4});
  const auto nothing = search(p.request);
  REQUIRE(!nothing);
  CHECK(nothing.error().code == ErrorCode::kUsage);
  CHECK(nothing.error().message.find("--pin") != std::string::npos);
  p.request.inputs = {BoundaryLayout::Kind::kGiven, {{"X", "[{nvlink},{}]"}}};
  p.run();
  CHECK(p.counts("fc1") == Counts{{4, 1}, {1, 1}});
  CHECK(p.counts("fc2") == Counts{{4, 1}, {1, 1}});
  CHECK(p.outcome.propagation->seeds == std::vector<std::string>{"input 'X'"});
  // A pinned op counts first; where it meets the layout is said.
  p.run({{"fc2", {{1, 4}, {4, 1}}}});
  CHECK(p.counts("fc1") == Counts{{1, 1}, {1, 4}});
  REQUIRE(p.conflicts().size() == 1);
  CHECK(p.conflicts()[0].kind == Conflict::Kind::kMeeting);
  CHECK(p.conflicts()[0].from.because == "layout");
}

TEST_CASE("out_strategy alone", "[propagate]") {
  Propagated p(mlp(), {4});
  p.request.pins.ops["fc1"].out_strategy = Counts{{4, 1}};
  p.run();
  CHECK(p.counts("fc1") == Counts{{4, 1}, {1, 1}});
  CHECK(p.counts("fc2") == Counts{{4, 1}, {1, 1}});
}

// The spec in which a value is read.
std::string hub_of(const Graph& graph, const Strategy& strategy, const std::string& name) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].name == name) return to_text(strategy.values[v].hub, strategy.mesh);
  }
  return "";
}

TEST_CASE("an out_strategy that a ReduceScatter gives", "[propagate]") {
  // The contraction is split, so that the product is a partial sum: read by one op, by two, or by
  // none but the caller.
  for (int readers : {0, 1, 2}) {
    GraphWriter b;
    const ValueId x = b.input("X", {512, 256});
    const ValueId w = b.parameter("W", {256, 512});
    const ValueId h = b.op("MatMul", {x, w}, {512, 512}, {}, "mm");
    const std::string name = b.graph.value(h).name;
    b.graph.outputs = {h};
    if (readers > 0) b.graph.outputs = {b.op("Relu", {h}, {512, 512}, {}, "relu")};
    if (readers > 1) b.graph.outputs.push_back(b.op("Neg", {h}, {512, 512}, {}, "neg"));
    Propagated p(b.graph, {2, 4});
    OpPin& pin = p.request.pins.ops["mm"];
    pin.in_strategy = Counts{{2, 4}, {4, 1}};
    const std::vector<std::pair<Counts, std::string>> cases = {
        {{{8, 1}}, "[{ib,nvlink},{}]"},
        {{{2, 4}}, "[{ib},{nvlink}]"},
    };
    for (const auto& [counts, hub] : cases) {
      pin.out_strategy = counts;
      for (const std::string searcher : {"propagate", "dp", "rec", "auto"}) {
        p.request.searcher = searcher;
        INFO(readers << " readers, " << searcher << ", " << hub);
        const auto found = search(p.request);
        REQUIRE(found.ok());
        CHECK(hub_of(p.graph, found->strategy, name) == hub);
        int scatters = 0;
        for (const CostTerm& term : found->cost.terms) {
          scatters += term.collective.kind == CollectiveKind::kReduceScatter;
        }
        CHECK(scatters == 1);
      }
    }
    p.request.searcher = "propagate";
    // What no scattering gives, and what the reader is pinned not to take.
    pin.out_strategy = Counts{{1, 8}};
    const auto refused = search(p.request);
    REQUIRE(!refused);
    CHECK(refused.error().code == ErrorCode::kInput);
    CHECK(refused.error().message.find("out_strategy [[1,8]] cannot be kept") != std::string::npos);
    if (readers != 1) continue;
    pin.out_strategy = Counts{{8, 1}};
    p.request.pins.ops["relu"].in_strategy = Counts{{1, 8}};
    const auto conflict = search(p.request);
    REQUIRE(!conflict);
    CHECK(conflict.error().code == ErrorCode::kInput);
    CHECK(conflict.error().message.find("'mm'") != std::string::npos);
    CHECK(conflict.error().message.find("'relu'") != std::string::npos);
  }
}

TEST_CASE("plans that follow the pins only near them", "[propagate]") {
  int as_good = 0, better = 0;
  const int wanted = 40;
  for (std::uint64_t seed = 0; seed < wanted; ++seed) {
    const Graph graph = random_graph(seed, 4 + static_cast<int>(seed % 12));
    const GraphRules rules = rules_of(graph).value();
    const Cluster cluster = small_cluster({2, 2});
    SearchRequest request{graph, rules, cluster};
    const Mesh mesh = make_mesh(cluster, {2, 2}).value();
    // Split along the rows, by one axis and by both.
    for (std::size_t o : {seed % graph.ops.size(), (seed / 2) % graph.ops.size()}) {
      request.pins.ops[graph.ops[o].name].assignment.emplace(
          std::map<std::string, std::string>{{mesh.axes[0].name, rules.rules[o].factors[0].name}});
    }
    const auto built = build_problem(request, mesh);
    if (!built) continue;  // a factor that cannot be split
    Problem problem = built->problem;
    for (ProblemNode& node : problem.nodes) std::fill(node.cost.begin(), node.cost.end(), 0.0);
    const Seeds seeds = seeds_of(request, *built);
    const PropagationTrace trace = propagate_breadth_first(request, *built, seeds);
    const Solution near = solve_near_pins(*built, problem, trace, {});
    const Solution least = solve_dp(problem, {});
    INFO("seed " << seed);
    REQUIRE(near.feasible);
    REQUIRE(least.feasible);
    const double tiny = 1e-12;
    CHECK(near.cost == Approx(evaluate(problem, near.choices).cost));
    CHECK(near.cost >= least.lower_bound - tiny);
    const double first = evaluate(problem, trace.choices).cost;
    CHECK(near.cost <= first + tiny);
    as_good += near.cost <= least.cost + tiny;
    better += near.cost < first - tiny;
  }
  INFO(as_good << " as good as the least, " << better << " better than breadth first");
  CHECK(as_good > wanted / 2);
  CHECK(better > 0);
}

TEST_CASE("over the memory limit is no plan", "[propagate]") {
  Propagated p(mlp(), {4});
  p.request.memory_limit = 1 << 20;
  p.request.pins = pins_of({{"fc1", {{1, 1}, {1, 1}}}});
  const auto found = search(p.request);
  REQUIRE(!found);
  CHECK(found.error().code == ErrorCode::kInfeasible);
  CHECK(found.error().message.find("no plan fits into 1.00 MiB") != std::string::npos);
}

TEST_CASE("meshes that cannot keep the pins are skipped with the reason", "[propagate]") {
  Propagated p(mlp(), {2, 2});
  p.request.mesh.reset();
  p.run({{"fc1", {{2, 1}, {1, 2}}}});
  std::size_t skipped = 0;
  for (const MeshTrial& trial : p.outcome.trials) {
    if (trial.why.empty()) continue;
    ++skipped;
    CHECK(trial.why.find("fc1") != std::string::npos);
  }
  CHECK(skipped + 1 == p.outcome.trials.size());
}

TEST_CASE("reports of propagation read back", "[propagate]") {
  Propagated p(two_matmuls(), {4});
  p.request.propagate_exact = true;
  p.run({{"fc1", {{4, 1}, {1, 1}}}, {"fc2", {{1, 1}, {1, 4}}}});
  const Report report = build_report(p.request, p.outcome);
  const std::string text = to_json(report);
  const auto again = report_of_json(text, "report.json");
  REQUIRE(again.ok());
  REQUIRE(again->propagation.has_value());
  CHECK(again->propagation->seeds == report.propagation->seeds);
  CHECK(again->propagation->exact->seconds == report.propagation->exact->seconds);
  CHECK(to_table(*again) == to_table(report));
  const std::string table = to_table(report);
  CHECK(table.find("AllGather {nvlink} 0") != std::string::npos);
  CHECK(table.find("proven least") != std::string::npos);
}

namespace {

// One or two ops of a graph with a candidate each, drawn at random.
Pins random_pins(const SearchRequest& request, const Mesh& mesh, Draw& draw) {
  Pins pins;
  for (std::size_t n = 1 + draw.below(2); n > 0; --n) {
    const std::size_t o = draw.below(request.graph.ops.size());
    const Rule& rule = request.rules.rules[o];
    const auto all = candidates(rule, mesh);
    const Assignment& chosen = all[draw.below(all.size())];
    std::map<std::string, std::string> assignment;
    for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
      const int f = chosen.factor_of_axis[a];
      assignment[mesh.axes[a].name] =
          f < 0 ? "none" : rule.factors[static_cast<std::size_t>(f)].name;
    }
    pins.ops[request.graph.ops[o].name].assignment = assignment;
  }
  return pins;
}

void check_pins(const SearchRequest& request, const Strategy& strategy) {
  for (std::size_t o = 0; o < request.graph.ops.size(); ++o) {
    const auto pin = request.pins.ops.find(request.graph.ops[o].name);
    if (pin == request.pins.ops.end()) continue;
    for (std::size_t a = 0; a < strategy.mesh.axes.size(); ++a) {
      const int f = strategy.assignments[o].factor_of_axis[a];
      const std::string factor =
          f < 0 ? "none" : request.rules.rules[o].factors[static_cast<std::size_t>(f)].name;
      CHECK(pin->second.assignment->at(strategy.mesh.axes[a].name) == factor);
    }
  }
}

// The least redistribution there is, by trying everything.
std::optional<double> least_redistribution(const SearchRequest& request) {
  RooflineModel model(request.cluster, *request.mesh);
  auto built = build_problem(request, model);
  REQUIRE(built.ok());
  if (combinations(built->problem) > 2e4) return std::nullopt;
  for (ProblemNode& node : built->problem.nodes) std::fill(node.cost.begin(), node.cost.end(), 0);
  const auto solution = solve_exhaustive(built->problem);
  REQUIRE(solution.ok());
  REQUIRE(solution->feasible);
  return solution->cost;
}

}  // namespace

TEST_CASE("random graphs: pins kept, priced as evaluated, never below the least", "[propagate]") {
  int tried = 0, apart = 0, by_oracle = 0, conflicts = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Draw draw{std::mt19937_64(seed * 77 + 5)};
    const Graph graph = random_graph(seed, 1 + static_cast<int>(seed % 9));
    const Cluster cluster = small_cluster(seed % 3 == 0   ? std::vector<std::int64_t>{2, 2}
                                          : seed % 3 == 1 ? std::vector<std::int64_t>{2}
                                                          : std::vector<std::int64_t>{4});
    const GraphRules rules = rules_of(graph).value();
    SearchRequest request{graph, rules, cluster};
    request.searcher = "propagate";
    request.mesh = mesh_candidates(cluster, 2).back();
    request.pins = random_pins(request, *request.mesh, draw);
    request.outputs.kind =
        seed % 2 == 0 ? BoundaryLayout::Kind::kFree : BoundaryLayout::Kind::kFull;
    const auto plain = search(request);
    const auto again = search(request);
    request.propagate_exact = true;
    const auto exact = search(request);
    CAPTURE(seed, graph.ops.size());
    REQUIRE((plain.ok() && again.ok() && exact.ok()));
    ++tried;
    CHECK(plain->strategy == again->strategy);
    check_pins(request, plain->strategy);
    check_pins(request, exact->strategy);
    CHECK(verify(graph, rules, plain->strategy).ok());
    RooflineModel model(cluster, *request.mesh);
    CHECK(evaluate(graph, rules, plain->strategy, model)->total() == plain->cost.total());
    const Propagation& p = *exact->propagation;
    CHECK(p.breadth_first.seconds == plain->propagation->breadth_first.seconds);
    CHECK(p.breadth_first.seconds >= p.exact->seconds * (1 - 1e-9));
    CHECK(p.exact_gap == 0);
    apart += p.breadth_first.seconds > p.exact->seconds * (1 + 1e-6);
    double sum = 0;
    for (const Conflict& c : plain->propagation->conflicts) {
      sum += c.seconds;
      const bool pinned = c.from.because == "pinned" && c.to.because == "pinned";
      CHECK((c.kind == Conflict::Kind::kPins) <= (pinned || c.to.because == "layout"));
      CHECK(c.from.spec != c.to.spec);
      CHECK(!c.steps.empty());
      ++conflicts;
    }
    CHECK(sum <= plain->propagation->breadth_first.seconds * (1 + 1e-9));
    if (const auto least = least_redistribution(request)) {
      ++by_oracle;
      CHECK(p.exact->seconds == Approx(*least).margin(1e-6 * exact->cost.total()));
    }
  }
  CHECK(tried == 150);
  CHECK(by_oracle > 20);
  CHECK(conflicts > 20);
  CHECK(apart > 0);   // breadth first is not always the best,
  CHECK(apart < 75);  // but mostly
}

}  // namespace autopar::propagate_test
