// Double recursion and auto: levels against all their choices, any device count, pins, memory.
#include <catch2/catch.hpp>
#include <random>

#include "graphs.hpp"
#include "search/rec/groups.hpp"
#include "search/rec/level.hpp"
#include "search/rec/meshes.hpp"

namespace autopar::rec_test {

using namespace testing;

namespace {

// Ops along a chain with some skips; prices between roles like those of collectives.
rec::LevelProblem random_level(std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto price = [&](double most) { return most * static_cast<double>(below(1000)) / 1000; };
  rec::LevelProblem problem;
  const std::size_t nodes = 2 + below(5), roles = 2 + below(3);
  for (std::size_t s = 0; s + 1 < nodes; ++s) problem.add_star(rec::Row(roles, 0.0));
  for (std::size_t n = 0; n < nodes; ++n) {
    const std::size_t choices = 1 + below(3);
    rec::Row cost;
    for (std::size_t c = 0; c < choices; ++c) cost.push_back(price(1));
    problem.add_node(problem.add_cost(std::move(cost)), price(1));
    const auto add = [&](std::size_t star, bool produces) {
      rec::PortPrices prices(choices, roles);
      for (double& p : prices.values) p = below(8) == 0 ? rec::kNever : price(2);
      for (std::size_t c = 0; c < choices; ++c) prices.row(c)[below(roles)] = 0;
      problem.add_port(static_cast<int>(star), problem.add_prices(std::move(prices)), produces);
    };
    if (n > 0) add(n - 1, false);
    if (n > 2 && below(2) == 0) add(below(n - 1), false);
    if (n + 1 < nodes) add(n, true);
  }
  return problem;
}

double least_cost(const rec::LevelProblem& problem) {
  std::vector<int> choices(problem.nodes.size(), 0);
  double least = kInfinity;
  while (true) {
    least = std::min(least, rec::level_cost(problem, choices));
    std::size_t n = 0;
    for (; n < choices.size(); ++n) {
      if (++choices[n] < static_cast<int>(problem.choices(n))) break;
      choices[n] = 0;
    }
    if (n == choices.size()) return least;
  }
}

// Batches of n through two layers, widths that odd counts divide too.
Graph layers_graph(std::int64_t batch, std::int64_t width, int layers = 3) {
  GraphWriter b;
  ValueId x = b.input("X", {batch, width});
  for (int l = 0; l < layers; ++l) {
    const std::string name = "l" + std::to_string(l);
    const ValueId w = b.parameter(name + ".w", {width, width});
    const ValueId v = b.parameter(name + ".v", {width, width});
    const ValueId up = b.op("MatMul", {x, w}, {batch, width}, {}, name + ".up");
    const ValueId act = b.op("Relu", {up}, {batch, width}, {}, name + ".act");
    const ValueId down = b.op("MatMul", {act, v}, {batch, width}, {}, name + ".down");
    x = b.op("Add", {x, down}, {batch, width}, {}, name + ".add");
  }
  b.graph.outputs = {x};
  b.graph.name = "layers";
  return b.graph;
}

Seconds cost_of(const SearchRequest& request, const std::string& searcher) {
  SearchRequest asked = request;
  asked.searcher = searcher;
  const auto found = search(asked);
  if (found) return found->cost.total();
  CHECK(found.error().code == ErrorCode::kInfeasible);
  return kInfinity;
}

}  // namespace

TEST_CASE("rec: decisions of a level against all choices", "[rec]") {
  int optimal = 0;
  double excess = 0;
  const int wanted = 400;
  for (int seed = 0; seed < wanted; ++seed) {
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const rec::LevelProblem problem = random_level(random);
    const std::vector<int> choices = rec::decide(problem, {});
    REQUIRE(choices == rec::decide(problem, {}));
    const double cost = rec::level_cost(problem, choices), least = least_cost(problem);
    INFO("seed " << seed);
    REQUIRE(cost >= least * (1 - 1e-12));
    optimal += cost <= least * (1 + 1e-9) + 1e-12;
    excess += cost - least;
  }
  INFO(optimal << " of " << wanted << " optimal, mean excess " << excess / wanted);
  CHECK(optimal > wanted * 9 / 10);
}

TEST_CASE("rec: the layers of a deep model are decided as one", "[rec]") {
  const Cluster cluster = small_cluster({4, 2, 3});
  std::size_t groups_before = 0;
  for (const int layers : {20, 60}) {
    INFO(layers);
    const Graph graph = layers_graph(96, 48, layers);
    const auto rules = rules_of(graph);
    const SearchRequest request{graph, *rules, cluster};
    const rec::Wiring wiring = rec::wiring_of(request);
    const rec::Groups groups = rec::alike(wiring, {});
    CHECK((groups_before == 0 || groups.ops.size() == groups_before));
    groups_before = groups.ops.size();
    double ops = 0;
    for (const auto& group : groups.ops) ops += group.count;
    CHECK(ops == static_cast<double>(graph.ops.size()));
    double touches = 0, alone = 0;
    for (const auto& port : groups.ports) touches += port.count;
    for (const auto& port : rec::each_alone(wiring).ports) alone += port.count;
    CHECK(touches == alone);

    const Mesh mesh = rec::finest_mesh(cluster);
    const rec::Allowed all(wiring.op_of_class.size());
    rec::RecursionOptions options;
    const auto each = rec::recurse(request, {}, wiring, mesh, all, options);
    options.few_ops = 0;
    const auto as_one = rec::recurse(request, {}, wiring, mesh, all, options);
    REQUIRE(each);
    REQUIRE(as_one);
    CHECK(as_one->cost <= each->cost * 1.5);
    REQUIRE(as_one->assignments.size() == graph.ops.size());
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      CHECK(specs_of(rules->rules[o], as_one->assignments[o], mesh));
      const auto group = static_cast<std::size_t>(groups.group_of_op[o]);
      const auto first = static_cast<std::size_t>(groups.ops[group].first);
      CHECK(as_one->assignments[o] == as_one->assignments[first]);
    }
  }
}

TEST_CASE("rec: cuts of any device count become few axes", "[rec]") {
  for (std::int64_t outer : {1, 5, 6, 7, 12, 125}) {
    for (std::int64_t inner : {1, 2, 6, 8}) {
      const Cluster cluster = small_cluster({inner, outer});
      const Mesh finest = rec::finest_mesh(cluster);
      CHECK(finest.size() == outer * inner);
      for (const Axis& axis : finest.axes) {
        for (std::int64_t p = 2; p < axis.size; ++p) CHECK(axis.size % p != 0);
      }
      const Graph graph = layers_graph(outer * inner, 24);
      const auto rules = rules_of(graph);
      SearchRequest request{graph, *rules, cluster};
      const rec::Wiring wiring = rec::wiring_of(request);
      const rec::Allowed all(wiring.op_of_class.size());
      const auto decisions = rec::recurse(request, {}, wiring, finest, all, {});
      REQUIRE(decisions.ok());
      const rec::JoinedMeshes meshes(cluster, finest, *decisions);
      for (int most : {1, 2, 3}) {
        REQUIRE(!meshes.all(most).empty());
        for (const auto& joins : meshes.all(most)) {
          CHECK(meshes.mesh(joins).size() == outer * inner);
          CHECK(meshes.mesh(joins).rank() <= std::max(most, 2));
        }
      }
    }
  }
}

TEST_CASE("rec: any device count; no better than the bound; the same again", "[rec]") {
  for (std::int64_t devices : {1, 2, 6, 7, 12, 48, 1000}) {
    const Cluster cluster =
        small_cluster({devices % 4 == 0 ? 4 : 1, devices % 4 == 0 ? devices / 4 : devices});
    const Graph graph = layers_graph(devices == 7 ? 14 : 96, 120);
    const auto rules = rules_of(graph);
    SearchRequest request{graph, *rules, cluster};
    request.searcher = "recursive_programming";
    INFO(devices << " devices");
    const auto found = search(request);
    REQUIRE(found.ok());
    CHECK(found->searcher == "rec");
    CHECK(found->lower_bound == 0);
    const auto again = search(request);
    REQUIRE(again.ok());
    CHECK(again->strategy == found->strategy);
    request.mesh = found->strategy.mesh;
    request.searcher = "dp";
    const auto exact = search(request);
    REQUIRE(exact.ok());
    CHECK(found->cost.total() >= exact->lower_bound * (1 - 1e-12));
    CHECK(found->cost.total() <= exact->cost.total() * 1.25);
  }
}

TEST_CASE("rec: meshes have no more axes than asked for", "[rec]") {
  const Graph graph = layers_graph(4, 64);  // the batch is too small for all devices
  const auto rules = rules_of(graph);
  std::size_t most_seen = 0;
  for (const std::vector<std::int64_t>& tiers :
       {std::vector<std::int64_t>{8}, std::vector<std::int64_t>{4, 8}}) {
    const Cluster cluster = small_cluster(tiers);
    SearchRequest request{graph, *rules, cluster};
    request.searcher = "rec";
    for (int most : {1, 2, 3, 0}) {
      request.max_axes = most;
      INFO(tiers.size() << " tiers, at most " << most);
      const auto found = search(request);
      REQUIRE(found.ok());
      const std::size_t least = most == 0 ? 4 : static_cast<std::size_t>(most);
      for (const MeshTrial& trial : found->trials) {
        CHECK(trial.mesh.axes.size() <= std::max(least, tiers.size()));
        most_seen = std::max(most_seen, trial.mesh.axes.size());
      }
    }
    request.mesh = *make_mesh(cluster, tiers.size() == 1 ? std::vector<std::int64_t>{2, 4}
                                                         : std::vector<std::int64_t>{2, 4, 4});
    request.max_axes = 1;
    const auto fixed = search(request);
    REQUIRE(fixed.ok());
    CHECK(fixed->strategy.mesh == *request.mesh);
  }
  CHECK(most_seen > 2);
}

TEST_CASE("rec: pins are kept, by counts and by names", "[rec]") {
  const Graph graph = layers_graph(24, 24);
  const auto rules = rules_of(graph);
  for (std::int64_t devices : {8, 12}) {
    const Cluster cluster = small_cluster({devices});
    SearchRequest request{graph, *rules, cluster};
    request.searcher = "rec";
    const std::vector<std::vector<std::int64_t>> counts = {{2, 1}, {1, devices / 2}};
    request.pins.ops["l1.up"].in_strategy = counts;
    const auto found = search(request);
    REQUIRE(found.ok());
    const auto specs = op_specs_of(graph, *rules, found->strategy);
    REQUIRE(specs.ok());
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].name != "l1.up") continue;
      CHECK(strategy_of((*specs)[o].inputs, found->strategy.mesh) == counts);
    }
    request.pins.ops["l1.up"].in_strategy = {{5, 1}, {1, 1}};
    const auto refused = search(request);
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == ErrorCode::kInput);
    CHECK(refused.error().message.find("l1.up") != std::string::npos);
  }
}

TEST_CASE("rec: one number that is read twice, and could be a partial sum", "[rec]") {
  for (const char* reduce : {"ReduceSum", "ReduceMax"}) {
    GraphWriter b;
    const ValueId x = b.input("X", {30});
    const ValueId sum = b.op(reduce, {x}, {}, {{"keepdims", std::int64_t{0}}}, "sum");
    b.graph.outputs = {b.op("Add", {sum, sum}, {}, {}, "twice")};
    const auto rules = rules_of(b.graph);
    REQUIRE(rules.ok());
    for (const std::int64_t devices : {2, 3, 5}) {
      Cluster cluster = small_cluster({devices});
      cluster.device.memory_bandwidth_bytes_per_s = 1e3;  // that is worth splitting
      SearchRequest request{b.graph, *rules, cluster};
      request.searcher = "rec";
      INFO(reduce << " on " << devices);
      const auto found = search(request);
      REQUIRE(found.ok());
      request.searcher = "dp";
      const auto exact = search(request);
      REQUIRE(exact.ok());
      CHECK(found->cost.total() <= exact->cost.total() * 1.25);
    }
  }
}

TEST_CASE("rec: never over the memory limit", "[rec]") {
  int fitted = 0, refused = 0, by_rec = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Graph graph =
        seed % 3 == 0 ? layers_graph(24, 48) : random_graph(seed, 3 + static_cast<int>(seed % 5));
    const auto rules = rules_of(graph);
    const Cluster cluster = small_cluster(seed % 2 == 0 ? std::vector<std::int64_t>{4}
                                                        : std::vector<std::int64_t>{2, 2});
    SearchRequest request{graph, *rules, cluster};
    request.searcher = "rec";
    const auto free = search(request);
    REQUIRE(free.ok());
    for (const double share : {0.95, 0.7, 0.5, 0.2}) {
      request.memory_limit =
          static_cast<Bytes>(static_cast<double>(free->cost.memory.total) * share);
      const auto found = search(request);
      INFO("seed " << seed << " share " << share);
      if (found) {
        ++fitted;
        CHECK(found->cost.memory.total <= request.memory_limit);
        CHECK(found->cost.total() >= free->cost.total() * 0.5);
        continue;
      }
      ++refused;
      CHECK(found.error().code == ErrorCode::kInfeasible);
      // What rec does not find may be there; what no plan keeps is said of all.
      const bool of_rec = found.error().message.rfind("rec found no plan that fits", 0) == 0;
      const bool of_all = found.error().message.rfind("no plan fits", 0) == 0;
      CHECK(of_rec != of_all);
      by_rec += of_rec;
    }
  }
  INFO(fitted << " fitted, " << refused << " refused");
  CHECK(fitted > 20);
  CHECK(refused > 20);
  CHECK(by_rec > 5);
}

TEST_CASE("rec: tables that are too big for a device are split early", "[rec]") {
  // Embeddings that take 9 times what a device has, and hardly any work: gathering them whole is
  // what a plan that is repaired only afterwards does.
  GraphWriter b;
  const std::int64_t batch = 64, rows = 100000, width = 16;
  std::vector<ValueId> found;
  for (int t = 0; t < 6; ++t) {
    const std::string name = "t" + std::to_string(t);
    const ValueId table = b.parameter(name, {rows + 1000 * t, width});
    const ValueId ids = b.input(name + ".ids", {batch}, DType::kInt64);
    found.push_back(b.op("Gather", {table, ids}, {batch, width}, {{"axis", std::int64_t{0}}}));
  }
  ValueId sum = found[0];
  for (std::size_t t = 1; t < found.size(); ++t) {
    sum = b.op("Add", {sum, found[t]}, {batch, width}, {}, "add" + std::to_string(t));
  }
  b.graph.outputs = {sum};
  b.graph.name = "tables";
  const auto rules = rules_of(b.graph);
  const Cluster cluster = small_cluster({4, 4});
  SearchRequest request{b.graph, *rules, cluster};
  request.memory_limit = Bytes{rows * width * 4 * 6 / 9};
  request.searcher = "rec";
  const auto quick = search(request);
  REQUIRE(quick.ok());
  CHECK(quick->cost.memory.total <= request.memory_limit);
  request.mesh = quick->strategy.mesh;
  request.searcher = "dp";
  const auto exact = search(request);
  REQUIRE(exact.ok());
  CHECK(quick->cost.total() <= exact->cost.total() * 1.5);
  // One that is asked for more than there is says so.
  request.searcher = "rec";
  request.memory_limit = Bytes{rows * width * 4 * 6 / 20};
  const auto refused = search(request);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kInfeasible);
}

TEST_CASE("auto: as good as the best of those that it runs", "[rec]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Graph graph = random_graph(seed, 2 + static_cast<int>(seed % 7));
    const auto rules = rules_of(graph);
    const Cluster cluster = small_cluster(seed % 2 == 0 ? std::vector<std::int64_t>{6}
                                                        : std::vector<std::int64_t>{2, 3});
    SearchRequest request{graph, *rules, cluster};
    if (seed % 3 == 0) {
      request.pins.ops[graph.ops[seed % graph.ops.size()].name].assignment.emplace();
    }
    if (seed % 4 == 1) request.memory_limit = 6000;
    INFO("seed " << seed);
    request.searcher = "auto";
    const auto found = search(request);
    const Seconds best = std::min(
        {cost_of(request, "rec"), cost_of(request, "data_parallel"), cost_of(request, "dp")});
    REQUIRE(found.ok() == (best < kInfinity));
    if (!found) continue;
    CHECK(found->cost.total() <= best);
    CHECK(found->searcher == "auto");
    CHECK(found->picked.tried.size() >= 3);
    CHECK(!found->picked.why.empty());
    CHECK(found->lower_bound <= found->cost.total());
  }
}

TEST_CASE("rec: relative costs of SAPP give its textbook plans", "[rec]") {
  // MatMuls of the published tests of the original: the cheapest cut three times over.
  const auto counts_of = [](std::int64_t m, std::int64_t k, std::int64_t n) {
    GraphWriter b;
    const ValueId x = b.input("X", {m, k});
    const ValueId w = b.parameter("W", {k, n});
    b.graph.outputs = {b.op("MatMul", {x, w}, {m, n}, {}, "mm")};
    b.graph.name = "one";
    const auto rules = rules_of(b.graph);
    const Cluster cluster = small_cluster({8});
    SearchRequest request{b.graph, *rules, cluster};
    request.searcher = "rec";
    request.cost_model = "symbolic";
    const auto found = search(request);
    REQUIRE(found.ok());
    const auto specs = op_specs_of(b.graph, *rules, found->strategy);
    return strategy_of((*specs)[0].inputs, found->strategy.mesh);
  };
  using Counts = std::vector<std::vector<std::int64_t>>;
  CHECK(counts_of(32768, 1024, 1024) == Counts{{8, 1}, {1, 1}});
  CHECK(counts_of(160, 320, 3200000) == Counts{{1, 1}, {1, 8}});
}

}  // namespace autopar::rec_test
