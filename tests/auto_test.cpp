// auto: never dearer than the best of the searchers that a user may run beside it.
#include "search/auto.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "autopar/import.hpp"
#include "cases.hpp"
#include "graphs.hpp"

namespace autopar::auto_test {

using namespace testing;

namespace {

namespace fs = std::filesystem;

bool has_wishes(const SearchRequest& request) {
  return !request.pins.ops.empty() || !request.pins.values.empty() ||
         request.inputs.kind != BoundaryLayout::Kind::kFree;
}

// What is within a rounding error is equal.
bool no_dearer(Seconds a, Seconds b) { return a <= b * (1 + 1e-12); }

// Nothing where no plan fits.
std::optional<SearchOutcome> outcome_of(const SearchRequest& request, const std::string& searcher) {
  SearchRequest asked = request;
  asked.searcher = searcher;
  auto found = search(asked);
  if (found) return std::move(*found);
  INFO(searcher << ": " << found.error().message);
  CHECK(found.error().code == ErrorCode::kInfeasible);
  return {};
}

constexpr double kNothing = 1;  // is small enough for the exact search

// Returns auto's plan, if there is one.
std::optional<SearchOutcome> check_beside(const SearchRequest& request,
                                          std::optional<double> affordable = {}) {
  std::optional<SearchOutcome> found;
  if (affordable) {
    auto answer = search_auto(request, *affordable);
    if (answer) found = std::move(*answer);
  } else {
    found = outcome_of(request, "auto");
  }
  std::vector<std::string> beside = {"rec", "data_parallel"};
  if (has_wishes(request)) beside.emplace_back("propagate");
  for (const std::string& searcher : beside) {
    const auto other = outcome_of(request, searcher);
    INFO(searcher);
    if (!other) continue;
    REQUIRE(found.has_value());
    INFO("auto " << found->cost.total() << ", " << searcher << " " << other->cost.total());
    // What one run had time for, the next one may not have.
    if (found->interrupted || other->interrupted) continue;
    CHECK(no_dearer(found->cost.total(), other->cost.total()));
  }
  if (!found) return {};
  // What it says about itself.
  const Picked& picked = found->picked;
  CHECK(!picked.why.empty());
  Seconds least = kInfinity;
  std::string first;
  for (const SearcherTrial& trial : picked.tried) {
    if (!trial.found) CHECK((trial.cost == 0 || no_dearer(found->cost.total(), trial.cost)));
    if (!trial.found) continue;
    if (trial.cost < least) first = trial.searcher;
    least = std::min(least, trial.cost);
  }
  CHECK(least == found->cost.total());
  CHECK(first.rfind(picked.searcher, 0) == 0);  // "dp on mesh 2x4" is dp's
  CHECK(found->lower_bound <= found->cost.total());
  if (request.limit_memory && request.memory_limit > 0) {
    CHECK(found->cost.memory.total <= request.memory_limit);
  }
  return found;
}

// As it is; with a pin; under memory limits; and with little time.
void check_all(const Graph& graph, const GraphRules& rules, const Cluster& cluster) {
  SearchRequest request{graph, rules, cluster};
  request.limit_memory = true;
  const auto free = check_beside(request);
  REQUIRE(free.has_value());
  for (const double share : {0.9, 0.6, 0.3}) {
    request.memory_limit = static_cast<Bytes>(static_cast<double>(free->cost.memory.total) * share);
    INFO("memory " << share);
    check_beside(request);
  }
  request.memory_limit = 0;
  for (const double seconds : {1e-4, 0.01, 0.3}) {
    for (const int threads : {1, 2}) {
      request.solve.time_limit = seconds;
      request.solve.threads = threads;
      INFO("time limit " << seconds << ", threads " << threads);
      check_beside(request);
    }
  }
  request.solve.threads = 1;
  request.solve.time_limit = kInfinity;
  request.solve.gap = 0.2;
  check_beside(request);
  request.solve.gap = 0;
  // An op as no plan would have it: whole on every device.
  request.pins.ops[graph.ops[graph.ops.size() / 2].name].assignment.emplace();
  INFO("pinned");
  check_beside(request);
  request.memory_limit = static_cast<Bytes>(static_cast<double>(free->cost.memory.total) * 0.8);
  check_beside(request);
}

}  // namespace

TEST_CASE("auto: no dearer than rec, propagate and data_parallel on random graphs", "[auto]") {
  for (std::uint64_t seed = 0; seed < cases(24u); ++seed) {
    const Graph graph = random_graph(seed, 2 + static_cast<int>(seed % 9));
    const auto rules = rules_of(graph);
    INFO("seed " << seed);
    check_all(graph, *rules,
              small_cluster(seed % 2 == 0 ? std::vector<std::int64_t>{4}
                                          : std::vector<std::int64_t>{2, 2}));
  }
}

TEST_CASE("auto: no dearer than rec, propagate and data_parallel on models", "[auto]") {
  const std::string source = AUTOPAR_SOURCE;
  const char* given = std::getenv("AUTOPAR_SHARED");
  const std::string shared = given ? given : source + "/../shared";
  const std::vector<fs::path> files = {
      source + "/models/mlp.onnx",
      source + "/models/gpt2_tiny.onnx",
      shared + "/data/models/tiny_dlrm.onnx",
      shared + "/data/models/tiny_moe_gather.onnx",
  };
  for (const fs::path& file : files) {
    if (!fs::exists(file)) {
      WARN("skipped: no " << file);
      continue;
    }
    const auto model = import_model(file.string(), {});
    REQUIRE(model.ok());
    const auto rules = rules_of(model->graph);
    REQUIRE(rules.ok());
    INFO(file.filename());
    check_all(model->graph, *rules, small_cluster({2, 3}));
  }
}

// Free of wishes, with all the time and proven: only rec may have meshes of its own.
TEST_CASE("auto: what is proven is not tried", "[auto]") {
  const Graph graph = random_graph(3, 8);
  const auto rules = rules_of(graph);
  const Cluster cluster = small_cluster({2, 2, 2});
  SearchRequest request{graph, *rules, cluster};
  for (const bool pinned : {false, true}) {
    if (pinned) request.pins.ops[graph.ops.front().name].assignment.emplace();
    const auto found = check_beside(request);
    REQUIRE(found.has_value());
    CHECK(found->picked.searcher == "dp");
    const auto& tried = found->picked.tried;
    REQUIRE(tried.size() == (pinned ? 4 : 3));
    for (std::size_t i = 2; i < tried.size(); ++i) {
      CHECK(!tried[i].found);
      CHECK(tried[i].cost == found->cost.total());
      CHECK(tried[i].error.rfind("not run", 0) == 0);
    }
  }
}

// What was asked for is reached, and then nothing more is looked for: neither by the exact search
// nor by others that could only be better by less than the gap.
TEST_CASE("auto: with a gap the search ends where it is reached", "[auto]") {
  const auto model = import_model(std::string(AUTOPAR_SOURCE) + "/models/llama_tiny.onnx", {});
  REQUIRE(model.ok());
  const auto rules = rules_of(model->graph);
  REQUIRE(rules.ok());
  const Cluster cluster = small_cluster({4, 4});
  for (const double gap : {0.5, 0.05, 0.001}) {
    INFO("gap " << gap);
    SearchRequest request{model->graph, *rules, cluster};
    request.solve.gap = gap;
    const auto found = check_beside(request);
    REQUIRE(found.has_value());
    CHECK(found->lower_bound >= found->cost.total() * (1 - gap));
    for (const SearcherTrial& trial : found->picked.tried) {
      const bool spared = trial.searcher == "dp" || !trial.found;
      CHECK(spared);
    }
  }
}

TEST_CASE("auto: what is too large for the exact search is improved", "[auto]") {
  int improved = 0, cheaper = 0;
  for (std::uint64_t seed = 0; seed < cases(16u); ++seed) {
    const Graph graph = random_graph(seed, 4 + static_cast<int>(seed % 9));
    const auto rules = rules_of(graph);
    const Cluster cluster = small_cluster({4, 2});
    SearchRequest request{graph, *rules, cluster};
    if (seed % 3 == 1) request.pins.ops[graph.ops[seed % graph.ops.size()].name].assignment = {};
    INFO("seed " << seed);
    const auto free = check_beside(request, kNothing);
    REQUIRE(free.has_value());
    for (const double share : {1.0, 0.7, 0.4}) {
      request.memory_limit =
          static_cast<Bytes>(static_cast<double>(free->cost.memory.total) * share);
      INFO("memory " << share);
      const auto found = check_beside(request, kNothing);
      if (!found) continue;
      for (const SearcherTrial& trial : found->picked.tried) CHECK(trial.searcher != "dp");
      const bool told = found->picked.why.find("too large") != std::string::npos;
      CHECK(told);
      CHECK(found->lower_bound == 0);
      improved += found->picked.tried.back().searcher.find("improved") != std::string::npos;
      cheaper += found->picked.searcher.find("improved") != std::string::npos;
      // No plan is cheaper than the best one.
      request.mesh = found->strategy.mesh;
      const auto exact = outcome_of(request, "dp");
      request.mesh.reset();
      REQUIRE(exact.has_value());
      CHECK(no_dearer(exact->lower_bound, found->cost.total() * (1 + 1e-9)));
    }
  }
  INFO(improved << " improved, " << cheaper << " of them cheaper");
  CHECK(improved > cases(20));
  CHECK(cheaper > cases(3));
}

// Cut to the end, the machine has four axes; the exact search tries three.
TEST_CASE("auto: the bound outlives a plan on a mesh of rec's own", "[auto]") {
  int tried = 0, left_out = 0;
  for (const std::uint64_t seed : {31, 33, 42, 52, 55}) {
    const Graph graph = random_graph(seed, 4 + static_cast<int>(seed % 9));
    const auto rules = rules_of(graph);
    Cluster cluster = small_cluster({4, 2, 2});
    SearchRequest request{graph, *rules, cluster};
    const auto exact = outcome_of(request, "dp");
    REQUIRE(exact.has_value());
    for (const double affordable : {1e5, 2e5, 3e5, 4e5, 6e5, 8e5, 1e6, 2e6, 1e9}) {
      INFO("seed " << seed << ", affordable " << affordable);
      const auto found = search_auto(request, affordable);
      REQUIRE(found.ok());
      const bool ran = found->picked.tried.front().searcher == "dp";
      if (!ran || found->cost.total() >= exact->cost.total()) continue;
      CHECK(found->lower_bound > 0);
      const auto own =
          std::find_if(found->trials.begin(), found->trials.end(),
                       [&](const MeshTrial& trial) { return trial.mesh == found->strategy.mesh; });
      REQUIRE(own != found->trials.end());
      CHECK(found->bounds_own_mesh() == (own->end != TrialEnd::kNotTried));
      CHECK(found->trials.size() == exact->trials.size() + 1);
      (found->bounds_own_mesh() ? tried : left_out) += 1;
      if (found->bounds_own_mesh()) {
        SearchRequest on_own = request;
        on_own.mesh = found->strategy.mesh;
        const auto alone = outcome_of(on_own, "dp");
        REQUIRE(alone.has_value());
        CHECK(found->cost.total() == alone->cost.total());
        CHECK(found->lower_bound == std::min(alone->lower_bound, exact->lower_bound));
      }
    }
  }
  INFO(tried << " tried, " << left_out << " left out");
  CHECK(tried > 0);
  CHECK(left_out > 0);
}

}  // namespace autopar::auto_test
