// What a search of a step with streams says it has proven, against simulated plans, and the weights
// of streams that it is proven with.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <random>

#include "autopar/streams.hpp"
#include "cases.hpp"
#include "search/balanced_weights.hpp"
#include "search/build/build.hpp"
#include "search/matrix_game.hpp"
#include "stream_cases.hpp"

namespace autopar::stream_bound_test {

using namespace testing;
using namespace testing::stream_cases;

TEST_CASE("with a profile the bound of a search is one on the time of every plan", "[streams]") {
  double widest = 0, sum = 0;
  const std::uint64_t seeds = cases(24u);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Case c(seed + 100);
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    request.mesh = *make_mesh(c.cluster, {2, 2});
    const auto found = search(request);
    INFO("seed " << seed);
    REQUIRE(found);
    CHECK(found->lower_bound > 0);
    CHECK(found->lower_bound <= found->cost.time());
    widest = std::max(widest, found->gap());
    sum += found->gap();
    RooflineModel model(c.cluster, *request.mesh);
    const auto again = evaluate(c.graph, rules, found->strategy, model);
    CHECK(again->time() == found->cost.time());
    const MeshProblem built = *build_problem(request, model);
    Draw draw{std::mt19937_64(seed)};
    for (int trial = 0; trial < 60; ++trial) {
      const std::vector<int> choices =
          trial < 20 ? near_best(built.problem, draw) : drawn(built.problem, draw);
      if (!(evaluate(built.problem, choices).cost < kInfinity)) continue;
      const auto cost = evaluate(c.graph, rules, strategy_of(c.graph, built, choices), model);
      REQUIRE(cost);
      CHECK(cost->time() >= found->lower_bound * (1 - 1e-9));
    }
  }
  INFO("gaps: mean " << sum / static_cast<double>(seeds) << ", widest " << widest);
  CHECK(sum / static_cast<double>(seeds) < 0.15);
}

namespace {

// The least time of all plans on one mesh, each simulated; nothing: there are too many.
std::optional<Seconds> least_time(const Graph& graph, const GraphRules& rules,
                                  const MeshProblem& built, RooflineModel& model) {
  double count = 1;
  for (const ProblemNode& node : built.problem.nodes) {
    count *= static_cast<double>(node.cost.size());
  }
  if (count > 3e4) return {};
  Seconds least = kInfinity;
  std::vector<int> choices(built.problem.nodes.size(), 0);
  for (std::size_t n = 0; n < choices.size();) {
    if (evaluate(built.problem, choices).cost < kInfinity) {
      const auto cost = evaluate(graph, rules, strategy_of(graph, built, choices), model);
      if (cost) least = std::min(least, cost->time());
    }
    for (n = 0; n < choices.size(); ++n) {
      const auto size = static_cast<int>(built.problem.nodes[n].cost.size());
      if (++choices[n] < size) break;
      choices[n] = 0;
    }
  }
  return least;
}

}  // namespace

TEST_CASE("bound <= the least of all simulated plans <= the plan", "[streams]") {
  int tried = 0, best = 0;
  for (std::uint64_t seed = 0; seed < cases(60u); ++seed) {
    Cluster cluster = cluster_of(seed);
    Graph graph = seed % 2 == 0 ? two_matmuls() : random_graph(seed, 2);
    graph.kernels = group_kernels(graph, cluster.profile);
    const GraphRules rules = *rules_of(graph);
    SearchRequest request{graph, rules, cluster};
    request.limit_memory = false;
    request.mesh = *make_mesh(cluster, {4});
    RooflineModel model(cluster, *request.mesh);
    const auto least = least_time(graph, rules, *build_problem(request, model), model);
    if (!least) continue;
    ++tried;
    const auto found = search(request);
    INFO("seed " << seed);
    REQUIRE(found);
    CHECK(found->lower_bound <= *least * (1 + 1e-9));
    CHECK(*least <= found->cost.time() * (1 + 1e-9));
    best += found->cost.time() <= *least * (1 + 1e-9) ? 1 : 0;
  }
  INFO(best << " of " << tried << " plans are the best");
  CHECK(tried > cases(20));
  CHECK(2 * best > tried);
}

TEST_CASE("what the ops take at least is below every plan", "[streams]") {
  double widest = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const Case c(seed + 200);
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    if (seed % 4 != 3) request.weights = StreamTimes{0.9, {0.02, 0.02, 0.02}, 0.02, 0.02};
    RooflineModel model(c.cluster, *make_mesh(c.cluster, {2, 2}));
    const auto least = least_of_ops(request, model);
    REQUIRE(least);
    const Solution best = solve_dp(build_problem(request, model)->problem, {});
    INFO("seed " << seed);
    REQUIRE(best.feasible);
    CHECK(*least > 0);
    CHECK(*least <= best.cost * (1 + 1e-12));
    widest = std::max(widest, *least / best.cost);
  }
  CHECK(widest > 0.9);
}

TEST_CASE("a search that has to beat a known plan ends by bounds, and misses no cheaper one",
          "[streams]") {
  int without_a_look = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const Case c(seed + 300);
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    const auto free = search(request);
    INFO("seed " << seed);
    REQUIRE(free);
    SearchFindings findings;
    request.findings = &findings;
    request.solve.cutoff = free->cost.time() * 1.001;
    const auto again = search(request);
    REQUIRE(again);
    CHECK(again->cost.time() <= request.solve.cutoff);
    // Nothing is so fast; where compute decides, that is known before anything is looked at.
    request.solve.cutoff = 0.1 * free->lower_bound;
    const auto faster = search(request);
    if (faster) CHECK(faster->cost.time() >= free->lower_bound * (1 - 1e-9));
    if (faster) continue;
    REQUIRE(findings.trials.size() == free->trials.size());
    for (const MeshTrial& trial : findings.trials) {
      CHECK(trial.end == TrialEnd::kPruned);
      CHECK(trial.lower_bound >= request.solve.cutoff);
      CHECK(trial.lower_bound <= free->cost.time() * (1 + 1e-9));
      without_a_look += trial.stages.empty() ? 1 : 0;
    }
  }
  CHECK(without_a_look > 10);
}

// What is on the path of a step adds up to its time; what is not has no weight.
TEST_CASE("by the weights of its path a plan costs what its step takes", "[streams]") {
  int plans = 0, with_links = 0;
  for (std::uint64_t seed = 0; seed < 36; ++seed) {
    Case c(seed);
    if (c.graph.copies > 1) continue;
    Profile& profile = c.cluster.profile;  // the host is on no path
    profile.host_s = profile.stage_collective_s = profile.stage_collective_rank_s = 0;
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    RooflineModel model(c.cluster, *make_mesh(c.cluster, {2, 2}));
    Draw draw{std::mt19937_64(seed)};
    request.weights = StreamTimes{0.4, {0.2, 0.2}, 0.1, 0.1};
    const MeshProblem built = *build_problem(request, model);
    for (int trial = 0; trial < 8; ++trial) {
      const std::vector<int> choices = near_best(built.problem, draw);
      const Strategy strategy = strategy_of(c.graph, built, choices);
      const auto cost = evaluate(c.graph, rules, strategy, model);
      REQUIRE(cost);
      std::vector<StreamPrices> prices =
          prices_by_path(c.graph, *cost, built.mesh, c.cluster, request.updates);
      for (StreamPrices& of_op : prices) of_op.behind = {};
      SearchRequest by_path = request;
      by_path.prices_of_ops = std::make_shared<const std::vector<StreamPrices>>(prices);
      const MeshProblem again = *build_problem(by_path, model);
      INFO("seed " << seed << ", trial " << trial);
      CHECK(evaluate(again.problem, choices).cost == Approx(cost->step->seconds).epsilon(1e-6));
      const bool is_on_links =
          std::any_of(prices.begin(), prices.end(), [](const StreamPrices& of_op) {
            return of_op.weights.links[0] + of_op.weights.links[1] > 0.5;
          });
      with_links += is_on_links ? 1 : 0;
      ++plans;
    }
  }
  CHECK(plans > 100);
  CHECK(with_links > 20);
}

// So it is of ops that all are free.
TEST_CASE("weights of streams that do nothing are weights", "[streams]") {
  for (StreamTimes weights : {StreamTimes().sharp_weights(), balanced_weights({{}, {}})}) {
    double sum = 0;
    for (const Seconds* w : weights.all()) {
      CHECK(*w > 0);
      sum += *w;
    }
    CHECK(sum == Approx(1));
  }
  CHECK(!weights_of_more({{}}, 0));
}

// No mix of rows has more in each column than some mix of columns has in each row, so where both
// are the same, both are the best.
TEST_CASE("the best mix of rows is worth what the best mix of columns is", "[streams]") {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> number(0, 9);
  for (int round = 0; round < 400; ++round) {
    const std::size_t count = 1 + static_cast<std::size_t>(round % 7);
    const std::size_t columns = 1 + static_cast<std::size_t>(round / 7 % 12);
    std::vector<std::vector<double>> rows(count, std::vector<double>(columns));
    std::vector<std::vector<double>> less(columns, std::vector<double>(count));
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        rows[r][c] = number(random) + (r + c == 0 ? 1 : 0);
        less[c][r] = 11 - rows[r][c];
      }
    }
    const auto value = [](const std::vector<std::vector<double>>& matrix) {
      const std::vector<double> mix = best_mix_of_rows(matrix);
      double sum = 0, least = 1e9;
      for (const double w : mix) {
        CHECK(w >= 0);
        sum += w;
      }
      CHECK(sum == Approx(1));
      for (std::size_t c = 0; c < matrix.front().size(); ++c) {
        double of_column = 0;
        for (std::size_t r = 0; r < matrix.size(); ++r) of_column += mix[r] * matrix[r][c];
        least = std::min(least, of_column);
      }
      return least;
    };
    CHECK(value(rows) == Approx(11 - value(less)).margin(1e-6));
  }
}

}  // namespace autopar::stream_bound_test
