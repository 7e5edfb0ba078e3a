// Parts that choose apart: what they cost and use together, their best mix, and what comes of it.
#include "problem_checks.hpp"
#include "solve/limit/columns.hpp"
#include "solve/limit/halves.hpp"
#include "solve/limit/mixes.hpp"
#include "solve/plans/combine.hpp"
#include "solve/plans/variants.hpp"

namespace autopar::solver::sift_test {

using namespace testing;

namespace {

// Layers one after the other, forward and then backward, each with a stream in either direction,
// weights that are kept from the one to the other or fetched twice, and a gradient that is kept
// from there to the end or sent at once. All of it depends a little on how the streams are split.
Problem training(unsigned seed, int layers, int kinds, double part) {
  Generator draw(seed);
  Problem problem;
  problem.horizon = 3 * layers;
  const auto table = [&] {
    CostTable made = {2, 2, {}};
    for (int k = 0; k < 4; ++k) made.values.push_back(k % 3 == 0 ? 0 : 5 + draw.below(20));
    return problem.add_table(made);
  };
  const int along = table();
  std::vector<int> beside;
  std::vector<double> size, fetched, sent;
  for (int k = 0; k < kinds; ++k) {
    beside.push_back(table());
    size.push_back(1000 + draw.below(9000));
    fetched.push_back(20 + draw.below(40));
    sent.push_back(200 + draw.below(400));
  }
  const auto add = [&](std::vector<double> cost, std::vector<NodeUse> uses) {
    problem.nodes.push_back({"", std::move(cost), std::move(uses)});
    return static_cast<int>(problem.nodes.size()) - 1;
  };
  int stream = -1;
  double most = 0;
  for (int l = 0; l < layers; ++l) {
    const int back = 2 * layers - 1 - l;
    const int next = add({100, 103}, {{l, back, {60, 20}}, {back, back + 1, {9000, 7000}}});
    if (stream >= 0) problem.edges.push_back({stream, next, along, {}});
    stream = next;
    for (int k = 0; k < kinds; ++k) {
      const double bytes = size[at(k)];
      const int weights = add({0, fetched[at(k)]}, {{l, back + 1, {bytes, bytes / 8}}});
      const int gradient = add({0, sent[at(k)]}, {{back, 3 * layers - l % 7, {bytes, bytes / 8}}});
      problem.edges.push_back({stream, weights, beside[at(k)], {}});
      problem.edges.push_back({stream, gradient, beside[at(k)], {}});
      problem.edges.push_back({weights, gradient, along, {}});
      most += bytes;
    }
  }
  problem.use_limit = std::floor(part * most);
  return problem;
}

std::vector<int> drawn_labels(const Network& net, Generator& draw) {
  std::vector<int> labels;
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    labels.push_back(draw.below(net.label_count(static_cast<int>(n))));
  }
  return labels;
}

// The same, changed in a few places; not in the streams, which are every `layer`-th.
std::vector<std::vector<int>> drawn_pool(const Network& net, const std::vector<int>& base,
                                         std::size_t layer, Generator& draw) {
  std::vector<std::vector<int>> pool = {base};
  for (int k = 0; k < 3; ++k) {
    const std::vector<int> other = drawn_labels(net, draw);
    std::vector<int> labels = base;
    for (std::size_t n = 0; n < labels.size(); ++n) {
      if (n % layer != 0 && draw.chance(0.4)) labels[n] = other[n];
    }
    pool.push_back(labels);
  }
  return pool;
}

std::vector<int> drawn_variants(const Parts& parts, Generator& draw) {
  std::vector<int> variants;
  for (const Part& part : parts.parts) {
    variants.push_back(draw.below(static_cast<int>(part.variants.size())));
  }
  return variants;
}

double cost_of(const Parts& parts, const std::vector<int>& variants) {
  double cost = parts.cost;
  for (std::size_t p = 0; p < variants.size(); ++p) {
    cost += parts.parts[p].variants[at(variants[p])].cost;
  }
  return cost;
}

Vector uses_of(const Parts& parts, const std::vector<int>& variants) {
  Vector uses = parts.used;
  for (std::size_t p = 0; p < variants.size(); ++p) {
    for (const Amount& use : parts.parts[p].variants[at(variants[p])].uses) {
      for (int r = use.begin; r < use.end; ++r) uses[at(r)] += use.bytes;
    }
  }
  return uses;
}

TEST_CASE("parts cost and use what their labels do", "[solver][sift]") {
  std::size_t parts_seen = 0;
  int transferred = 0;  // variants that were met in another part
  for (unsigned seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed);
    const Problem problem = training(seed, 6 + 40 * draw.below(2), 2, 0.5);
    const auto net = build_network(problem, maximal_times(problem));
    const std::vector<int> base = drawn_labels(*net, draw);
    const std::vector<std::vector<int>> pool = drawn_pool(*net, base, 5, draw);
    double work = 0;
    const Parts parts = split_into_parts(*net, fold_or_alone(*net), base, pool, work);
    parts_seen += parts.parts.size();
    for (const Part& part : parts.parts) {
      std::vector<Labels> own;
      for (const std::vector<int>& labels : pool) {
        own.emplace_back();
        for (int n : part.nodes) own.back().push_back(labels[at(n)]);
      }
      CHECK(part.variants[0].labels == own[0]);
      for (const Variant& variant : part.variants) {
        transferred += std::count(own.begin(), own.end(), variant.labels) == 0 ? 1 : 0;
      }
    }
    for (int trial = 0; trial < 5; ++trial) {
      const std::vector<int> variants = drawn_variants(parts, draw);
      const std::vector<int> labels = labels_of(parts, variants);
      CHECK(close(cost_of(parts, variants), value_of(*net, labels)));
      const Vector uses = uses_of(parts, variants), truth = solver::uses_of(*net, labels);
      CHECK(std::equal(uses.begin(), uses.end(), truth.begin(), truth.end(), close));
    }
  }
  CHECK(parts_seen > 100);
  CHECK(transferred > 20);
}

// What no choice of variants within the capacities is below, by the prices.
double bound_by(const Parts& parts, const Vector& capacity, const std::map<int, double>& prices) {
  double bound = parts.cost;
  for (const auto& [row, price] : prices)
    bound -= price * (capacity[at(row)] - parts.used[at(row)]);
  for (const Part& part : parts.parts) {
    double least = kInfinity;
    for (const Variant& variant : part.variants) {
      double value = variant.cost;
      for (const Amount& use : variant.uses) {
        for (const auto& [row, price] : prices) {
          value += row >= use.begin && row < use.end ? price * use.bytes : 0;
        }
      }
      least = std::min(least, value);
    }
    bound += least;
  }
  return bound;
}

TEST_CASE("the best mix of variants, held to all combinations", "[solver][sift]") {
  int fitting = 0, tried = 0, optimal = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed);
    const int kinds = 1 + draw.below(2);
    const Problem problem = training(seed, 5, kinds, 0.4 + 0.6 * draw.unit());
    const auto net = build_network(problem, maximal_times(problem));
    const std::vector<int> base = drawn_labels(*net, draw);
    double work = 0;
    const Parts parts = split_into_parts(*net, fold_or_alone(*net), base,
                                         drawn_pool(*net, base, at(1 + 2 * kinds), draw), work);
    double combinations = 1;
    for (const Part& part : parts.parts) combinations *= static_cast<double>(part.variants.size());
    if (parts.parts.empty() || combinations > 1e4) continue;
    ++tried;
    double best = kInfinity;
    std::vector<int> variants(parts.parts.size(), 0);
    for (std::size_t p = 0; p < variants.size();) {
      const Vector uses = uses_of(parts, variants);
      bool fits = true;
      for (std::size_t r = 0; r < uses.size(); ++r) fits = fits && uses[r] <= net->capacity[r];
      if (fits) best = std::min(best, cost_of(parts, variants));
      for (p = 0; p < variants.size(); ++p) {
        if (++variants[p] < static_cast<int>(parts.parts[p].variants.size())) break;
        variants[p] = 0;
      }
    }
    std::vector<int> rows;
    Budget budget;
    const Combination mix = combine(parts, net->capacity, {}, rows, kInfinity, budget);
    CHECK(close(mix.value, bound_by(parts, net->capacity, mix.prices)));
    if (best < kInfinity) {
      CHECK(mix.fits);
      CHECK(mix.value <= best * (1 + 1e-9));
    }
    if (mix.variants.empty()) continue;
    ++fitting;
    CHECK(close(mix.cost, cost_of(parts, mix.variants)));
    CHECK(mix.cost >= best * (1 - 1e-9));
    const Vector uses = uses_of(parts, mix.variants);
    for (std::size_t r = 0; r < uses.size(); ++r) CHECK(uses[r] <= net->capacity[r]);
    optimal += close(mix.cost, best) ? 1 : 0;
  }
  CHECK(tried > 60);
  CHECK(fitting > 30);
  CHECK(optimal > fitting / 2);
}

TEST_CASE("prices, columns and mixes prove and find nothing that is not there",
          "[solver][sift][limits]") {
  int feasible = 0, optimal = 0, bounded = 0, divided = 0;
  for (unsigned seed = 0; seed < 80; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed);
    const Problem problem = training(seed, 5, 1, 0.3 + 0.9 * draw.unit());
    const Result<Solution> truth = solve_exhaustive(problem);
    REQUIRE(truth.ok());
    Budget budget;
    budget.work_limit = 1e9;
    Race race(problem, budget);
    race.left_out = seed % 2 == 0 ? 0 : bit_of(SolveStage::kFold);
    AllTimes all(race);
    if (all.net().impossible) continue;
    const std::vector<int> start = drawn_labels(all.net(), draw);
    if (all.overfull_rows(start).empty()) continue;
    Pricer pricer(race, all);
    Priced priced = find_prices(all, start, pricer, race);
    CHECK(race.bound <= truth->cost * (1 + 1e-9));
    generate_columns(all, pricer, priced, race);
    mix_labellings(all, pricer.rows(), priced, race);
    if (priced.divided) {
      const std::vector<Kept> halves = halves_of(all.net(), *priced.divided, priced.prices);
      divided += halves.empty() ? 0 : 1;
      search_halves(race, lift(all.net(), start), halves);
    }
    CHECK(race.bound <= truth->cost * (1 + 1e-9));
    for (const Met& met : priced.met) {
      CHECK(close(met.cost, evaluate(problem, lift(all.net(), met.labels)).cost));
    }
    if (!truth->feasible) {
      CHECK_FALSE(race.feasible());
      continue;
    }
    ++feasible;
    if (race.feasible()) CHECK(race.cost >= truth->cost * (1 - 1e-12));
    optimal += close(race.cost, truth->cost) ? 1 : 0;
    bounded += race.bound >= 0.9 * truth->cost ? 1 : 0;
  }
  CHECK(feasible > 25);
  CHECK(optimal > feasible / 2);
  CHECK(bounded > feasible / 2);
  CHECK(divided > 10);
}

TEST_CASE("what the best mix divides is branched on", "[solver][sift]") {
  // To use 600 less, the mix takes 0.6 of the large node's second choice; of whole choices 60 small
  // ones are the cheapest.
  Problem problem;
  problem.horizon = 1;
  problem.use_limit = 3400;
  problem.nodes.push_back({"large", {0, 100}, {{0, 1, {1000, 0}}}});
  for (int n = 0; n < 300; ++n) problem.nodes.push_back({"small", {1, 2.5}, {{0, 1, {10, 0}}}});
  Budget budget;
  budget.work_limit = 1e8;
  Race race(problem, budget);
  AllTimes all(race);
  const std::vector<int> start(problem.nodes.size(), 0);
  Pricer pricer(race, all);
  Priced priced = find_prices(all, all.labels_of(start), pricer, race);
  generate_columns(all, pricer, priced, race);
  CHECK(std::abs(race.bound - 360) < 0.01);
  REQUIRE(priced.divided);
  CHECK(priced.divided->node == 0);
  const std::vector<Kept> halves = halves_of(all.net(), *priced.divided, priced.prices);
  REQUIRE(halves.size() == 2);
  search_halves(race, start, halves);
  CHECK(close(race.cost, 390));
  CHECK(close(race.bound, 390));
}

// Nodes that have nothing in common but memory, each for some time: less of it costs more.
Problem many_alone(unsigned seed, int nodes, int horizon, double tightness) {
  Generator draw(seed);
  Problem problem;
  problem.horizon = horizon;
  Vector cheapest(static_cast<std::size_t>(horizon), 0.0), least = cheapest;
  for (int n = 0; n < nodes; ++n) {
    const int begin = draw.below(horizon), end = std::min(horizon, begin + 1 + draw.below(40));
    const double size = std::pow(10.0, 4 * draw.unit());
    ProblemNode node;
    NodeUse use = {begin, end, {}};
    for (int c = 2 + draw.below(8); c > 0; --c) {
      const double kept = draw.unit();
      use.bytes.push_back(std::floor(size * kept));
      node.cost.push_back(std::floor(1e4 * draw.unit() * draw.unit() * (1 - kept)));
    }
    const auto first = std::min_element(node.cost.begin(), node.cost.end()) - node.cost.begin();
    for (int t = begin; t < end; ++t) {
      cheapest[at(t)] += use.bytes[static_cast<std::size_t>(first)];
      least[at(t)] += *std::min_element(use.bytes.begin(), use.bytes.end());
    }
    node.uses.push_back(std::move(use));
    problem.nodes.push_back(std::move(node));
  }
  const double low = *std::max_element(least.begin(), least.end());
  const double high = *std::max_element(cheapest.begin(), cheapest.end());
  problem.use_limit = std::floor(low + tightness * (high - low));
  return problem;
}

TEST_CASE("dp where many nodes share nothing but memory", "[solver][sift][limits]") {
  for (const double tightness : {0.1, 0.5}) {
    const Problem problem = many_alone(3, 1500, 600, tightness);
    SolveOptions options;
    options.effort = 0.1;  // with all of it most of the time goes into gaps that stay open
    const Solution found = solve_dp(problem, options);
    check_claims(problem, found);
    REQUIRE(found.feasible);
    CHECK(found.gap() < 0.02);
  }
}

TEST_CASE("dp under a limit that every layer reaches at its own time", "[solver][sift][limits]") {
  const Problem problem = training(0, 120, 6, 0.35);
  const Solution found = solve_dp(problem, {});
  check_claims(problem, found);
  REQUIRE(found.feasible);
  CHECK(found.gap() < 0.005);
}

}  // namespace
}  // namespace autopar::solver::sift_test
