// Orders of nodes: the greedy one is held to one that looks at every node each time.
#include "solve/network/arrangement.hpp"

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <algorithm>
#include <cmath>
#include <set>

#include "problems.hpp"
#include "solve/effort.hpp"
#include "solve/network/network.hpp"

namespace autopar::solver::arrangement_test {

using namespace testing;

namespace {

// As the plain order is defined: hubs first; then, from the far end of what is connected, always
// the node next to those placed that adds least to the frontier, the first of equals.
class Greedy {
 public:
  explicit Greedy(const Network& net) : net_(net), placed_(net.nodes.size(), false) {
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
      neighbours_.emplace_back();
      for (int e : net.nodes[n].edges) {
        if (!net.nodes[n].gone) neighbours_[n].insert(other_end(net.edge(e), static_cast<int>(n)));
      }
    }
  }

  std::vector<int> run() {
    for (std::size_t n = 0; n < placed_.size(); ++n) {
      if (!net_.nodes[n].gone && is_hub(n)) place(n);
    }
    for (std::size_t n = 0; n < placed_.size(); ++n) {
      if (net_.nodes[n].gone || placed_[n]) continue;
      for (std::size_t next = far_end(far_end(n)); next < placed_.size(); next = best_next()) {
        place(next);
      }
    }
    return order_;
  }

 private:
  bool is_hub(std::size_t n) const { return neighbours_[n].size() > effort::order::kHubEdges; }

  double bits(std::size_t n) const { return std::log2(net_.label_count(static_cast<int>(n))); }

  void place(std::size_t n) {
    placed_[n] = true;
    order_.push_back(static_cast<int>(n));
  }

  std::size_t open(std::size_t n) const {
    return static_cast<std::size_t>(std::count_if(neighbours_[n].begin(), neighbours_[n].end(),
                                                  [&](int other) { return !placed_[at(other)]; }));
  }

  double growth(std::size_t n) const {
    double sum = open(n) > 0 ? bits(n) : 0;
    for (int other : neighbours_[n]) {
      if (placed_[at(other)] && open(at(other)) == 1) sum -= bits(at(other));
    }
    return sum;
  }

  std::size_t best_next() const {
    std::size_t best = placed_.size();
    for (std::size_t n = 0; n < placed_.size(); ++n) {
      if (net_.nodes[n].gone || placed_[n]) continue;
      const bool near = std::any_of(neighbours_[n].begin(), neighbours_[n].end(), [&](int other) {
        return placed_[at(other)] && !is_hub(at(other));
      });
      if (near && (best == placed_.size() || growth(n) < growth(best))) best = n;
    }
    return best;
  }

  std::size_t far_end(std::size_t n) const {
    std::vector<char> seen(placed_.begin(), placed_.end());
    std::vector<std::size_t> queue = {n};
    seen[n] = 1;
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (int other : neighbours_[queue[i]]) {
        if (!seen[at(other)]) queue.push_back(at(other));
        seen[at(other)] = 1;
      }
    }
    return queue.back();
  }

  const Network& net_;
  std::vector<std::set<int>> neighbours_;
  std::vector<bool> placed_;
  std::vector<int> order_;
};

}  // namespace

TEST_CASE("the order of nodes is the greedy one", "[arrangement]") {
  int tried = 0, with_hubs = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    Generator draw(seed + 900000);
    Recipe recipe;
    recipe.topology = seed % 2 == 0 ? Topology::kTree : Topology::kChain;
    recipe.nodes = 2 + draw.below(60);
    recipe.most_choices = 3;
    recipe.parallel = draw.chance(0.3);
    Problem problem = draw.make(recipe);
    if (draw.chance(0.3) && recipe.nodes > 30) {
      for (int n = 1; n < 30; ++n)
        problem.edges.push_back({.from = 0, .to = n, .cost_table = -1, .uses = {}});
      ++with_hubs;
    }
    const std::unique_ptr<Network> net = build_network(problem, {});
    REQUIRE(!net->impossible);
    Greedy greedy(*net);
    const std::vector<int> order = greedy.run();
    CHECK(narrow_order(*net) == order);
    ++tried;
  }
  CHECK(tried > 200);
  CHECK(with_hubs > 0);
}

}  // namespace autopar::solver::arrangement_test
