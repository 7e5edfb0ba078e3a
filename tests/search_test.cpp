// Searchers against exhaustive search on random graphs; the claims of cost, memory and bounds.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
#endif

#include "cases.hpp"
#include "graphs.hpp"

namespace autopar::search_test {

using namespace testing;

TEST_CASE("dp equals exhaustive search on random graphs", "[search]") {
  int compared = 0, limited = 0, infeasible = 0;
  for (std::uint64_t seed = 0; seed < cases(240u); ++seed) {
    const Graph graph = random_graph(seed, 1 + static_cast<int>(seed % 4));
    REQUIRE(verify(graph).ok());
    const Cluster cluster = small_cluster(seed % 3 == 0 ? std::vector<std::int64_t>{2, 2}
                                                        : std::vector<std::int64_t>{2});
    const auto rules = rules_of(graph);
    REQUIRE(rules.ok());
    SearchRequest request{graph, *rules, cluster};
    for (const Mesh& mesh : mesh_candidates(cluster, 2)) {
      RooflineModel model(cluster, mesh);
      auto built = build_problem(request, model);
      REQUIRE(built.ok());
      REQUIRE(verify(built->problem).ok());
      if (combinations(built->problem) > 3e5) continue;
      const Solution free = solve_dp(built->problem, {});
      REQUIRE(free.feasible);
      for (const double share : {10.0, 0.99, 0.97, 0.94, 0.9, 0.8, 0.5}) {
        built->problem.use_limit = free.peak_use * share;
        const Solution found = solve_dp(built->problem, {});
        const auto oracle = solve_exhaustive(built->problem);
        REQUIRE(oracle.ok());
        CAPTURE(seed, share, graph.ops.size());
        REQUIRE(found.feasible == oracle->feasible);
        ++compared;
        if (!oracle->feasible) {
          ++infeasible;
          CHECK(found.lower_bound == kInfinity);
          continue;
        }
        limited += share < 1;
        CHECK(found.cost == Approx(oracle->cost).epsilon(1e-12));
        CHECK(found.lower_bound <= found.cost);
        CHECK(found.lower_bound == Approx(found.cost).epsilon(1e-9));
        const Strategy strategy = strategy_of(graph, *built, found.choices);
        const auto cost = evaluate(graph, *rules, strategy, model);
        REQUIRE(cost.ok());
        CHECK(cost->total() == Approx(found.cost).epsilon(1e-12));
        CHECK(static_cast<double>(cost->memory.total) == found.peak_use);
      }
    }
  }
  CHECK(compared > cases(100));
  CHECK(limited > cases(20));
  CHECK(infeasible > cases(10));
}

TEST_CASE("evaluator and problem agree on random choices", "[search]") {
  Draw draw{std::mt19937_64(7)};
  for (std::uint64_t seed = 200; seed < 260; ++seed) {
    const Graph graph = random_graph(seed, 6);
    const Cluster cluster = small_cluster({3, 2, 2});
    const auto rules = rules_of(graph);
    REQUIRE(rules.ok());
    SearchRequest request{graph, *rules, cluster};
    const std::vector<Mesh> meshes = mesh_candidates(cluster, 3);
    RooflineModel model(cluster, meshes[draw.below(meshes.size())]);
    const auto built = build_problem(request, model);
    REQUIRE(built.ok());
    for (int trial = 0; trial < 5; ++trial) {
      std::vector<int> choices;
      for (const ProblemNode& node : built->problem.nodes) {
        choices.push_back(static_cast<int>(draw.below(node.cost.size())));
      }
      const Evaluation expected = evaluate(built->problem, choices);
      if (expected.cost == kInfinity) continue;
      const auto cost = evaluate(graph, *rules, strategy_of(graph, *built, choices), model);
      if (!cost) FAIL(cost.error().message);
      CAPTURE(seed, trial);
      CHECK(cost->total() == Approx(expected.cost).epsilon(1e-12));
      CHECK(static_cast<double>(cost->memory.total) == expected.peak_use);
    }
  }
}

TEST_CASE("pins are kept or refused with the reason", "[search]") {
  const Graph graph = random_graph(3, 4);
  const Cluster cluster = small_cluster({4});
  const auto rules = rules_of(graph);
  REQUIRE(rules.ok());
  SearchRequest request{graph, *rules, cluster};
  for (const Op& op : graph.ops) {
    if (op.type != "MatMul") continue;
    OpPin pin;
    pin.in_strategy = {{4, 1}, {1, 1}};
    request.pins.ops[op.name] = pin;
    const auto outcome = search(request);
    REQUIRE(outcome.ok());
    pin.in_strategy = {{5, 1}, {1, 1}};
    request.pins.ops[op.name] = pin;
    const auto refused = search(request);
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == ErrorCode::kInput);
    CHECK(refused.error().message.find(op.name) != std::string::npos);
    CHECK(refused.error().message.find("5 equal parts") != std::string::npos);
    return;
  }
  FAIL("the graph has no MatMul");
}

TEST_CASE("baselines are never better than dp", "[search]") {
  for (std::uint64_t seed = 300; seed < 330; ++seed) {
    const Graph graph = random_graph(seed, 5);
    const Cluster cluster = small_cluster({2, 2});
    const auto rules = rules_of(graph);
    REQUIRE(rules.ok());
    SearchRequest request{graph, *rules, cluster};
    const auto best = search(request);
    REQUIRE(best.ok());
    for (const char* name : {"data_parallel", "replicate"}) {
      request.searcher = name;
      const auto other = search(request);
      REQUIRE(other.ok());
      CHECK(best->cost.total() <= other->cost.total() * (1 + 1e-12));
      CHECK(best->lower_bound <= other->cost.total() * (1 + 1e-12));
    }
    request.searcher = "dp";
  }
}

}  // namespace autopar::search_test
