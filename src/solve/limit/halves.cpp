#include "solve/limit/halves.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/effort.hpp"
#include "solve/limit/within_limit.hpp"

namespace autopar::solver {
namespace {

using namespace effort::halves;

Problem with_only(const Problem& problem, const std::vector<Kept>& kept) {
  Problem result = problem;
  for (const Kept& its : kept) {
    std::vector<double>& cost = result.nodes[its.node].cost;
    std::vector<double> left(cost.size(), kInfinity);
    for (int choice : its.choices) left[at(choice)] = cost[at(choice)];
    cost = std::move(left);
  }
  return result;
}

// Choices that stay where they may.
std::vector<int> allowed(std::vector<int> choices, const std::vector<Kept>& kept) {
  for (const Kept& its : kept) {
    int& choice = choices[its.node];
    if (!std::binary_search(its.choices.begin(), its.choices.end(), choice)) {
      choice = its.choices.front();
    }
  }
  return choices;
}

// A part of all choices that may have better ones.
struct Open {
  std::vector<Kept> kept = {};
  double bound = 0;
  std::vector<Kept> halves = {};  // none: no node is divided
};

Open look_at(const Open& parent, const Kept& half, Race& race, const std::vector<int>& start) {
  Open made = {.kept = parent.kept};
  made.kept.push_back(half);
  const Problem problem = with_only(race.problem, made.kept);
  Race its(problem, race.budget, race.below());
  its.left_out = race.left_out;
  LimitedSearch search(its, allowed(start, made.kept));
  search.price();
  if (!its.closed()) search.find_plans();
  race.offer(its.choices);
  made.bound = std::max(parent.bound, its.bound);
  made.halves = search.halves();
  return made;
}

}  // namespace

std::vector<Kept> halves_of(const Network& net, const DividedNode& divided,
                            const RowPrices& prices) {
  const std::size_t n = at(divided.node);
  const Vector worth = priced_uses(net, divided.node, prices);
  Kept one = {.node = n}, other = {.node = n};
  for (std::size_t l = 0; l < worth.size(); ++l) {
    const double to_one = std::abs(worth[l] - worth[at(divided.one)]);
    const double to_other = std::abs(worth[l] - worth[at(divided.other)]);
    (to_one <= to_other ? one : other).choices.push_back(net.origin_labels[n][l]);
  }
  if (one.choices.empty() || other.choices.empty()) return {};
  return {std::move(one), std::move(other)};
}

void search_halves(Race& race, const std::vector<int>& start, std::vector<Kept> halves) {
  const auto by_bound = [](const Open& a, const Open& b) { return a.bound < b.bound; };
  std::vector<Open> open = {{.bound = race.bound, .halves = std::move(halves)}};
  for (int k = 0; k < effort::halves::kMost && !race.closed() && !race.budget.over(); ++k) {
    const auto least = std::min_element(open.begin(), open.end(), by_bound);
    if (least->halves.empty() ||
        race.below() - least->bound < effort::halves::kWorthwhile * race.below())
      break;
    const Open parent = std::move(*least);
    open.erase(least);
    for (const Kept& half : parent.halves) {
      open.push_back(look_at(parent, half, race, start));
    }
    race.raise(std::min_element(open.begin(), open.end(), by_bound)->bound);
  }
}

}  // namespace autopar::solver
