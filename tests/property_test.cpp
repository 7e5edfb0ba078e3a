// Proof by disagreement: 10,000 random problems and graphs from seeds, every searcher of the table
// against the exhaustive search, with and without memory limits, on all meshes. AUTOPAR_SWEEP=N
// takes N times as many seeds (less than 1: fewer), AUTOPAR_SEED=N only that one.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "instances.hpp"
#include "problem_checks.hpp"

namespace autopar::property_test {

using namespace testing;

namespace {

constexpr double kMostPlans = 5e4;  // of a graph on a mesh

// Of so many seeds those to be tried.
int swept(int seeds) {
  const char* times = std::getenv("AUTOPAR_SWEEP");
  return times == nullptr ? seeds : std::max(1, static_cast<int>(seeds * std::atof(times)));
}
int only_seed() {  // -1: all
  const char* seed = std::getenv("AUTOPAR_SEED");
  return seed == nullptr ? -1 : std::atoi(seed);
}

Recipe random_recipe(Generator& generator, unsigned seed) {
  Recipe recipe;
  recipe.topology = kTopologies[seed % 7];
  recipe.nodes = 1 + generator.below(8);
  recipe.most_choices = 1 + generator.below(5);
  recipe.parallel = generator.chance(0.3);
  recipe.forbidden = generator.chance(0.3);
  recipe.ties = generator.chance(0.4);
  recipe.uses = generator.chance(0.7);
  recipe.edge_uses = generator.chance(0.5);
  recipe.tightness = generator.unit();
  return recipe;
}

// A plan is wanted only if it is cheaper than the cutoff.
void check_cutoff(const Problem& problem, const Solution& truth) {
  if (!truth.feasible || truth.cost == 0) return;
  SolveOptions options;
  options.cutoff = truth.cost * 1.01;
  const Solution found = solve_dp(problem, options);
  REQUIRE(found.feasible);
  CHECK(close(found.cost, truth.cost));
  options.cutoff = truth.cost * 0.99;
  const Solution cut = solve_dp(problem, options);
  check_claims(problem, cut);
  CHECK(cut.lower_bound <= truth.cost * (1 + kRounding));
  CHECK((cut.feasible ? cut.cost : cut.lower_bound) >= options.cutoff);
}

void check_gap(const Problem& problem, const Solution& truth) {
  SolveOptions options;
  options.gap = 0.1;
  const Solution found = solve_dp(problem, options);
  check_claims(problem, found);
  REQUIRE(found.feasible == truth.feasible);
  if (!found.feasible) return;
  CHECK(found.gap() <= options.gap + kRounding);
  CHECK(found.lower_bound <= truth.cost * (1 + kRounding));
  CHECK(found.cost >= truth.cost * (1 - kRounding));
}

// Stopped before it began: whatever it says must hold.
void check_stopped(const Problem& problem, const Solution& truth) {
  const std::atomic<bool> stop = true;
  SolveOptions options;
  options.stop = &stop;
  const Solution found = solve_dp(problem, options);
  check_claims(problem, found);
  CHECK(found.lower_bound <= truth.cost * (1 + kRounding));
  CHECK((!found.feasible || truth.feasible));
  CHECK((found.lower_bound < kInfinity || !truth.feasible));
}

// Narrowed choices are the same as forbidden ones.
void check_restricted(const Problem& problem, Generator& generator) {
  Problem forbidden = problem;
  std::vector<std::vector<int>> allowed(problem.nodes.size());
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    if (generator.chance(0.5)) continue;
    std::vector<double>& costs = forbidden.nodes[n].cost;
    const int kept = generator.below(static_cast<int>(costs.size()));
    for (int c = 0; c < static_cast<int>(costs.size()); ++c) {
      if (c == kept || generator.chance(0.3)) {
        allowed[n].push_back(c);
      } else {
        costs[static_cast<std::size_t>(c)] = kInfinity;
      }
    }
  }
  const Solution found = solve_restricted(problem, allowed, {});
  check_claims(problem, found);
  const Solution truth = solve_exhaustive(forbidden).value();
  REQUIRE(found.feasible == truth.feasible);
  if (!truth.feasible) return;
  CHECK(close(found.cost, truth.cost));
  CHECK(close(found.lower_bound, truth.cost));
}

struct Tally {
  int instances = 0, limited = 0, infeasible = 0, pinned = 0;
  std::map<std::string, int> answers;  // by searcher
};

// Runs every searcher; returns the cost of the exhaustive one, infinite where nothing fits.
Seconds check_searchers(const Instance& instance, const Folder& folder, Tally& tally) {
  const auto truth = search(instance.request("exhaustive"));
  if (!truth) REQUIRE(truth.error().code == ErrorCode::kInfeasible);
  const Seconds optimum = truth ? truth->cost.total() : kInfinity;
  ++tally.instances;
  tally.infeasible += truth ? 0 : 1;
  tally.limited += instance.memory_limit > 0 ? 1 : 0;
  for (const Searcher& searcher : searchers()) {
    INFO("searcher " << searcher.name);
    const auto found = search(instance.request(searcher.name));
    if (!found) {
      INFO(found.error().message);
      // Some need pins; some look at a part of the plans only.
      const bool without_pins =
          found.error().code == ErrorCode::kUsage && instance.pins.ops.empty();
      CHECK((found.error().code == ErrorCode::kInfeasible || without_pins));
      CHECK((!searcher.proves_bound || optimum == kInfinity));
      continue;
    }
    ++tally.answers[searcher.name];
    check_outcome(instance, *found);
    CHECK(found->cost.total() >= optimum * (1 - kRounding));
    CHECK(found->lower_bound <= optimum * (1 + kRounding));
    CHECK(found->unlimited_lower_bound <= optimum * (1 + kRounding));
    if (std::string(searcher.name) == "dp") {
      CHECK(found->cost.total() == Approx(optimum).epsilon(kRounding));
      CHECK(found->lower_bound == Approx(optimum).epsilon(1e-9));
    }
    check_price(instance, *found, folder);
  }
  return optimum;
}

// A limit between the least that any plan needs and what the best plan without a limit uses, now
// and then just below the least.
Bytes random_limit(const Instance& instance, Draw& draw) {
  RooflineModel model(instance.cluster, instance.mesh);
  Problem problem = build_problem(instance.request("dp"), model).value().problem;
  const Solution free = solve_dp(problem, {});
  problem.use_limit = 0;
  const Solution least = solve_dp(problem, {});
  REQUIRE(free.feasible);
  REQUIRE(least.least_peak_proven);
  const double shares[] = {0, 0, 0.1, 0.25, 0.5, 0.75, 0.99, 1};
  const double room = (free.peak_use - least.least_peak_use) * shares[draw.below(8)];
  const auto limit = static_cast<Bytes>(least.least_peak_use + room);
  return std::max<Bytes>(1, limit - (draw.below(6) == 0 ? 1 : 0));
}

void check_graph(const Graph& graph, const Cluster& cluster, std::uint64_t seed,
                 const Folder& folder, Tally& tally) {
  REQUIRE(verify(graph).ok());
  const GraphRules rules = rules_of(graph).value();
  Draw draw{std::mt19937_64(seed)};
  Seconds best = kInfinity;
  bool all = true;
  for (const Mesh& mesh : mesh_candidates(cluster, 3)) {
    INFO("mesh " << to_text(mesh));
    Instance instance{graph, rules, cluster, mesh};
    RooflineModel model(cluster, mesh);
    if (combinations(build_problem(instance.request("dp"), model).value().problem) > kMostPlans) {
      all = false;
      continue;
    }
    best = std::min(best, check_searchers(instance, folder, tally));
    instance.memory_limit = random_limit(instance, draw);
    check_searchers(instance, folder, tally);
    if (draw.below(2) == 0) continue;
    if (draw.below(2) == 0) instance.memory_limit = 0;
    instance.pins = random_pin(instance, draw);
    check_searchers(instance, folder, tally);
    ++tally.pinned;
  }
  if (!all || best == kInfinity) return;
  SearchRequest request{graph, rules, cluster};
  request.max_axes = 3;
  const auto outcome = search(request);
  REQUIRE(outcome.ok());
  CHECK(outcome->cost.total() == Approx(best).epsilon(kRounding));
  CHECK(outcome->lower_bound == Approx(best).epsilon(1e-9));
}

}  // namespace

TEST_CASE("random problems: dp against the exhaustive search, under all options", "[property]") {
  int infeasible = 0, bound_by_memory = 0;
  const int seeds = swept(7000);
  for (int s = 0; s < seeds; ++s) {
    const auto seed = static_cast<unsigned>(only_seed() >= 0 ? only_seed() : s);
    INFO("seed " << seed);
    Generator generator(seed + 1000000);
    const Problem problem = generator.make(random_recipe(generator, seed));
    const Solution truth = check_against_exhaustive(problem);
    infeasible += truth.feasible ? 0 : 1;
    bound_by_memory += truth.feasible && truth.cost > truth.unlimited_lower_bound ? 1 : 0;
    check_cutoff(problem, truth);
    check_gap(problem, truth);
    check_stopped(problem, truth);
    check_restricted(problem, generator);
    if (only_seed() >= 0) return;
  }
  CHECK(infeasible > seeds / 40);
  CHECK(bound_by_memory > seeds / 20);
}

TEST_CASE("random graphs: every searcher against the exhaustive search", "[property]") {
  const std::vector<std::vector<std::int64_t>> clusters = {{2}, {3}, {4}, {6}, {2, 2}, {2, 3}};
  const Folder folder;
  Tally tally;
  const int wanted = swept(3000);
  std::uint64_t seed = only_seed() >= 0 ? static_cast<std::uint64_t>(only_seed()) : 0;
  for (; tally.instances < wanted; ++seed) {
    INFO("seed " << seed);
    const Cluster cluster = small_cluster(clusters[seed % clusters.size()]);
    const int ops = 1 + static_cast<int>(seed / 2 % 4);
    const Graph graph =
        seed % 2 == 0 ? random_graph(seed + 1000, ops) : mixed_graph(seed + 1000, ops);
    check_graph(graph, cluster, seed, folder, tally);
    if (only_seed() >= 0) return;
  }
  for (const Searcher& searcher : searchers()) {
    INFO(searcher.name << " answered " << tally.answers[searcher.name] << " times");
    CHECK(tally.answers[searcher.name] > wanted / 20);
  }
  INFO(tally.instances << " instances of " << seed << " graphs, " << tally.limited
                       << " with limits, " << tally.infeasible << " infeasible, " << tally.pinned
                       << " pinned");
  CHECK(tally.limited > wanted / 4);
  CHECK(tally.infeasible > wanted / 100);
  CHECK(tally.pinned > wanted / 20);
}

}  // namespace autopar::property_test
