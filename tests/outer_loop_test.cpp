// The search over meshes: pruning by gap, interrupts, time limits, wishes that name axes.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
#endif

#include "cases.hpp"
#include "graphs.hpp"
#include "search/weighted.hpp"

namespace autopar::outer_loop_test {

using namespace testing;

namespace {

struct Case {
  Graph graph;
  GraphRules rules;
  Cluster cluster;

  explicit Case(std::uint64_t seed, std::vector<std::int64_t> tiers = {2, 2, 2})
      : graph(random_graph(seed, 5)),
        rules(rules_of(graph).value()),
        cluster(small_cluster(tiers)) {}
  SearchRequest request() const {
    SearchRequest request{graph, rules, cluster};
    request.max_axes = 3;
    return request;
  }
};

std::size_t count(const SearchOutcome& outcome, TrialEnd end) {
  return static_cast<std::size_t>(
      std::count_if(outcome.trials.begin(), outcome.trials.end(),
                    [&](const MeshTrial& trial) { return trial.end == end; }));
}

}  // namespace

TEST_CASE("meshes whose known bound is too high are not looked at", "[outer]") {
  std::size_t left_out = 0;
  for (std::uint64_t seed = 0; seed < cases(20u); ++seed) {
    const Case c(seed, {4, 2});
    const auto free = search(c.request());
    REQUIRE(free.ok());
    SearchRequest request = c.request();
    SearchFindings findings;
    std::size_t told = 0;
    request.findings = &findings;
    request.tell = [&](const std::vector<MeshTrial>& trials) { told = trials.size(); };
    request.solve.cutoff = free->cost.time() * 1.01;
    for (const MeshTrial& trial : free->trials) {
      if (!(trial.mesh == free->strategy.mesh)) {
        request.known_bounds.push_back({trial.mesh, 2 * request.solve.cutoff});
      }
    }
    const auto found = search(request);
    REQUIRE(found.ok());
    CHECK(found->cost.time() == free->cost.time());
    CHECK(told == free->trials.size());
    for (const MeshTrial& trial : found->trials) {
      const bool is_known = !(trial.mesh == free->strategy.mesh);
      CHECK((trial.end == TrialEnd::kPruned && trial.stages.empty()) == is_known);
      left_out += is_known;
    }
    CHECK(findings.lower_bound <= found->cost.time());
  }
  CHECK(left_out >= cases(20u));
}

TEST_CASE("every mesh is tried or said to be pruned", "[outer]") {
  std::size_t pruned = 0;
  for (std::uint64_t seed = 0; seed < cases(30u); ++seed) {
    const Case c(seed, {4, 2});
    const auto found = search(c.request());
    REQUIRE(found.ok());
    const auto meshes = mesh_candidates(c.cluster, 3);
    REQUIRE(found->trials.size() == meshes.size());
    double best = kInfinity;
    for (std::size_t m = 0; m < meshes.size(); ++m) {
      const MeshTrial& trial = found->trials[m];
      CHECK(trial.mesh == meshes[m]);
      // A pruned mesh really has nothing better.
      SearchRequest alone = c.request();
      alone.mesh = meshes[m];
      const auto by_itself = search(alone);
      REQUIRE(by_itself.ok());
      best = std::min(best, by_itself->cost.total());
      CHECK(trial.lower_bound <= by_itself->cost.total() * (1 + 1e-12));
      if (trial.end == TrialEnd::kPruned) {
        CHECK(by_itself->cost.total() >= found->cost.total() * (1 - 1e-12));
      } else {
        CHECK(trial.end == TrialEnd::kPlan);
      }
    }
    pruned += count(*found, TrialEnd::kPruned);
    CHECK(found->cost.total() == Approx(best).epsilon(1e-12));
    CHECK(found->lower_bound <= best);
    // Meshes that were pruned after a first look have a bound, too.
    CHECK(found->unlimited_lower_bound > 0);
    CHECK(found->unlimited_lower_bound <= found->lower_bound);
    SearchRequest unlimited = c.request();
    unlimited.limit_memory = false;
    const auto without_limit = search(unlimited);
    REQUIRE(without_limit.ok());
    CHECK(without_limit->unlimited_lower_bound ==
          Approx(without_limit->lower_bound).epsilon(1e-12));
  }
  CHECK(pruned > 0);
}

TEST_CASE("where the limit binds, no mesh has a plan below its bound", "[outer]") {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    INFO("seed " << seed);
    const Graph graph = random_graph(seed, 180);
    const GraphRules rules = rules_of(graph).value();
    const Cluster cluster = small_cluster({4, 2});
    SearchRequest request{graph, rules, cluster};
    request.max_axes = 3;
    request.searcher = "dp";
    request.solve.effort = 0.03;
    const auto free = search(request);
    REQUIRE(free.ok());
    request.memory_limit = static_cast<Bytes>(0.7 * static_cast<double>(free->cost.memory.total));
    request.solve.until = SolveOptions::Until::kClose;  // to the plans; the rest goes mesh by mesh
    const auto found = search(request);
    if (!found.ok()) continue;
    CHECK(found->cost.total() > free->cost.total());
    for (const MeshTrial& trial : found->trials) {
      SearchRequest alone = request;
      alone.mesh = trial.mesh;
      const auto by_itself = search(alone);
      if (!by_itself.ok()) continue;
      ++compared;
      CHECK(trial.lower_bound <= by_itself->cost.total() * (1 + 1e-12));
    }
  }
  CHECK(compared > 0);
}

TEST_CASE("a gap that is not worth closing is left, and its bound holds", "[outer]") {
  const auto dp = std::find_if(searchers().begin(), searchers().end(),
                               [](const Searcher& s) { return std::string(s.name) == "dp"; });
  const auto closings = [](const SearchOutcome& found) {
    std::size_t count = 0;
    for (const MeshTrial& trial : found.trials) {
      for (const StageReport& stage : trial.stages) count += stage.name == "close" ? 1 : 0;
    }
    return count;
  };
  std::size_t fewer = 0;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    const Graph graph = random_graph(seed, 60);
    const GraphRules rules = rules_of(graph).value();
    const Cluster cluster = small_cluster({4, 2});
    SearchRequest request{graph, rules, cluster};
    request.searcher = "dp";
    request.solve.effort = 0.3;
    const auto free = search(request);
    REQUIRE(free.ok());
    request.memory_limit = static_cast<Bytes>(0.85 * static_cast<double>(free->cost.memory.total));
    const std::vector<Mesh> meshes = mesh_candidates(cluster, 3);
    const auto closed = search_on(request, *dp, meshes);
    const auto left = search_on(request, *dp, meshes, {.worth_closing = 1});
    INFO("seed " << seed);
    REQUIRE(closed.ok() == left.ok());
    if (!left.ok()) continue;
    fewer += closings(*closed) > 0 && closings(*left) == 0 ? 1 : 0;
    CHECK(left->lower_bound > 0);
    CHECK(left->lower_bound <= closed->cost.total());
    CHECK(closed->lower_bound <= left->cost.total());
  }
  CHECK(fewer > 0);
}

TEST_CASE("the gap holds over all meshes", "[outer]") {
  for (std::uint64_t seed = 40; seed < 60; ++seed) {
    const Case c(seed, {4, 2});
    const auto exact = search(c.request());
    REQUIRE(exact.ok());
    for (const double gap : {0.01, 0.3}) {
      SearchRequest request = c.request();
      request.solve.gap = gap;
      const auto close = search(request);
      REQUIRE(close.ok());
      CHECK(close->gap() <= gap * (1 + 1e-12));
      CHECK(close->lower_bound <= exact->cost.total() * (1 + 1e-12));
      CHECK(close->cost.total() * (1 - gap) <= exact->cost.total() * (1 + 1e-12));
    }
  }
}

TEST_CASE("an interrupt gives a plan, and says which meshes were not tried", "[outer]") {
  const Case c(5);
  const std::atomic<bool> stop{true};
  SearchRequest request = c.request();
  request.solve.stop = &stop;
  const auto found = search(request);
  REQUIRE(found.ok());
  CHECK(found->interrupted);
  CHECK(count(*found, TrialEnd::kNotTried) == found->trials.size());
  CHECK(found->cost.total() > 0);
  CHECK(found->lower_bound <= found->cost.total());
  const auto whole = search(c.request());
  REQUIRE(whole.ok());
  CHECK_FALSE(whole->interrupted);
  CHECK(whole->cost.total() <= found->cost.total());
}

TEST_CASE("a time limit ends the loop over the meshes", "[outer]") {
  const Case c(6);
  SearchRequest request = c.request();
  request.solve.time_limit = 1e-9;
  const auto found = search(request);
  REQUIRE(found.ok());
  CHECK(found->interrupted);
  CHECK(count(*found, TrialEnd::kNotTried) > 0);
  request.solve.time_limit = 1000;
  const auto whole = search(request);
  REQUIRE(whole.ok());
  CHECK_FALSE(whole->interrupted);
  CHECK(count(*whole, TrialEnd::kNotTried) == 0);
}

TEST_CASE("pins that name axes: every mesh says why it cannot keep them", "[outer]") {
  const Case c(3, {4, 2});
  const auto op = std::find_if(c.graph.ops.begin(), c.graph.ops.end(),
                               [](const Op& o) { return o.type == "MatMul"; });
  REQUIRE(op != c.graph.ops.end());
  SearchRequest request = c.request();
  request.pins.ops[op->name].assignment = std::map<std::string, std::string>{{"t0_1", "m"}};
  // Only the meshes that cut t0 in two have such an axis.
  const auto kept = search(request);
  REQUIRE(kept.ok());
  CHECK(count(*kept, TrialEnd::kPinsNotKept) == 1);
  CHECK(kept->trials[0].why.find("t0_1") != std::string::npos);
  request.pins.ops[op->name].assignment = std::map<std::string, std::string>{{"nowhere", "m"}};
  const auto refused = search(request);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kInput);
  // One sentence for all of them.
  CHECK(refused.error().message.find("'nowhere'") != std::string::npos);
  CHECK(refused.error().message.find("none of the 2 meshes") != std::string::npos);
  CHECK(refused.error().message.size() < 300);
}

TEST_CASE("a layout that cannot be kept names its file", "[outer]") {
  const Case c(3, {2});
  SearchRequest request = c.request();
  const std::string name = c.graph.value(c.graph.inputs[0]).name;
  request.inputs = {BoundaryLayout::Kind::kGiven, {{name, "[{nowhere},{}]"}}, "layout.json"};
  const auto refused = search(request);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.rfind("layout.json: ", 0) == 0);
  CHECK(refused.error().message.find(name) != std::string::npos);
}

}  // namespace autopar::outer_loop_test
