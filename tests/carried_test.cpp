// Messages that are carried from one network of a problem to another one.
#include <algorithm>

#include "problem_checks.hpp"
#include "solve/bound/dual.hpp"
#include "solve/network/reduce.hpp"

namespace autopar::solver::carried_test {

using namespace testing;

namespace {

Problem drawn(unsigned seed) {
  Generator draw(seed);
  Recipe recipe;
  recipe.topology = kTopologies[seed % 7];
  recipe.nodes = 6 + draw.below(3);
  recipe.most_choices = 4;
  recipe.forbidden = draw.chance(0.3);
  recipe.uses = true;
  recipe.edge_uses = draw.chance(0.5);
  recipe.tightness = 0.5 + 0.5 * draw.unit();
  return draw.make(recipe);
}

std::unique_ptr<Network> reduced(const Problem& problem, const std::vector<int>& times) {
  std::unique_ptr<Network> net = build_network(problem, times);
  reduce(*net);
  return net;
}

double bound_after(Dual& dual, int passes) {
  for (int pass = 0; pass < passes; ++pass) dual.pass(kInfinity);
  return dual.bound();
}

TEST_CASE("messages carried to the same network say as much", "[solver][carried]") {
  int tried = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const Problem problem = drawn(seed);
    const std::vector<int> times = seed % 2 == 0 ? std::vector<int>() : maximal_times(problem);
    const auto net = reduced(problem, times), again = reduced(problem, times);
    if (net->impossible) continue;
    Dual dual(*net);
    const double bound = bound_after(dual, 20);
    Dual other(*again);
    other.begin_from(dual.carried());
    // Messages are carried as floats.
    CHECK(bound_after(other, 1) >= bound - 1e-5 * std::abs(bound));
    ++tried;
  }
  CHECK(tried > 150);
}

TEST_CASE("messages carried to another network keep the bound true, and mostly save passes",
          "[solver][carried]") {
  int tried = 0, better = 0, worse = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    const Problem problem = drawn(seed + 1000);
    Problem unlimited = problem;
    unlimited.use_limit = kInfinity;
    const Result<Solution> truth = solve_exhaustive(unlimited);
    REQUIRE(truth.ok());
    if (!truth->feasible) continue;
    const auto from = reduced(problem, {});
    // Not reduced, or with rows that keep nodes from being eliminated.
    const auto to =
        seed % 2 == 0 ? build_network(problem, {}) : reduced(problem, maximal_times(problem));
    if (from->impossible || to->impossible) continue;
    Dual settled(*from);
    bound_after(settled, 20);
    Dual with(*to), without(*to);
    with.begin_from(settled.carried());
    const double bound = bound_after(with, 1), plain = bound_after(without, 1);
    if (with.exhausted() || without.exhausted()) continue;
    // Rows without a price: the bound is one of the problem without the limit.
    if (seed % 2 == 0) CHECK(bound <= truth->cost * (1 + 1e-9));
    CHECK(bound_after(with, 20) >= bound - 1e-9 * std::abs(bound));
    ++tried;
    better += bound > plain + 1e-6 * std::abs(plain) ? 1 : 0;
    worse += bound < plain - 1e-6 * std::abs(plain) ? 1 : 0;
  }
  CHECK(tried > 200);
  CHECK(better > 2 * worse);
}

TEST_CASE("labels of a network say which choices they stand for", "[solver][carried]") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    const Problem problem = drawn(seed + 5000);
    const auto whole = build_network(problem, {});
    const auto net = reduced(problem, {});
    if (net->impossible) continue;
    const auto all = choices_of_labels(*whole), left = choices_of_labels(*net);
    std::vector<char> merged(net->nodes.size(), 0);
    for (const Step& step : net->steps) {
      if (step.kind == Step::Kind::kMerge) merged[at(step.node)] = 1;
    }
    for (std::size_t n = 0; n < net->nodes.size(); ++n) {
      if (net->nodes[n].gone) continue;
      REQUIRE(left[n].size() == at(net->label_count(static_cast<int>(n))));
      // No two labels of a node are alike.
      std::vector<std::uint64_t> sorted = left[n];
      std::sort(sorted.begin(), sorted.end());
      CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
      for (std::size_t l = 0; l < left[n].size() && !merged[n]; ++l) {
        std::vector<int> labels(net->nodes.size(), 0);
        labels[n] = static_cast<int>(l);
        const int choice = lift(*net, labels)[n];
        const Labels& origin = whole->origin_labels[n];
        const auto label = std::find(origin.begin(), origin.end(), choice) - origin.begin();
        CHECK(left[n][l] == all[n][static_cast<std::size_t>(label)]);
      }
    }
  }
}

}  // namespace
}  // namespace autopar::solver::carried_test
