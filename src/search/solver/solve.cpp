// The searcher: first without the memory limit, which is exact on most graphs; then, if its answer
// does not fit, with multipliers for the times that are too tight.
#include <algorithm>
#include <cmath>
#include <utility>

#ifdef TRACE
#include <cstdio>
#endif
#include "search/solver/explore.hpp"
#include "search/solver/multipliers.hpp"
#include "search/solver/reduce.hpp"

namespace autopar {
namespace {

using namespace solver;

constexpr int kRootSteps = 300;

class Search {
 public:
  Search(const Problem& problem, const SolveOptions& options)
      : problem_(problem), options_(options) {
    budget_.stop = options.stop;
    if (options.time_limit < kInfinity) {
      budget_.deadline = std::chrono::steady_clock::now() +
                         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                             std::chrono::duration<double>(options.time_limit));
    }
  }

  Solution run() {
    std::unique_ptr<Network> net = build_network(problem_, false);
    budget_.work_limit = 2e9;
    Found found = explore(*net, kInfinity, budget_);
    result_.unlimited_lower_bound = found.bound;
    offer(found.labels);
    settle_bound(found.bound);
    if (!result_.feasible && found.value < kInfinity) limited();
    result_.interrupted = budget_.interrupted;
    return result_;
  }

 private:
  void limited() {
    const std::unique_ptr<Network> net = build_network(problem_, true);
    reduce(*net);
    double cutoff = kInfinity;
    double bound = result_.unlimited_lower_bound;
    if (net->impossible) {
      settle_bound(kInfinity);
      return;
    }
    Incumbent best;
    Dual dual(*net);
    tighten_rows(*net, dual, cutoff, best, budget_, kRootSteps);
#ifdef TRACE
    {
      int left = 0, edges = 0;
      for (const Node& n : net->nodes) left += n.gone ? 0 : 1;
      for (const Edge& e : net->edges) edges += e.gone ? 0 : 1;
      std::fprintf(stderr,
                   "root nodes %d edges %d rows %zu labels %ld alive %ld bound %.10g best %.10g "
                   "cutoff %.10g work %g pass %g\n",
                   left, edges, net->capacity.size(), dual.labels_total(), dual.labels_alive(),
                   dual.bound(), best.value, cutoff, budget_.work, dual.work_per_pass());
    }
#endif
    if (best.value < kInfinity) offer(lift(*net, best.labels));
    const Found found = explore_survivors(*net, dual, cutoff, budget_);
    if (found.value < kInfinity) offer(lift(*net, found.labels));
    settle_bound(std::max(found.bound, bound));
  }

  void offer(const std::vector<int>& choices) {
    if (choices.empty()) return;
    const Evaluation found = evaluate(problem_, choices);
    if (found.peak_use < result_.least_peak_use) {
      result_.least_peak_use = found.peak_use;
      result_.tightest_time = found.peak_time;
    }
    if (found.peak_use > problem_.use_limit || !(found.cost < result_.cost)) return;
    result_.feasible = true;
    result_.choices = choices;
    result_.cost = found.cost;
    result_.peak_use = found.peak_use;
  }

  void settle_bound(double bound) {
    // What is left below the cost is less than the sums' rounding.
    const bool proven = bound >= result_.cost * (1 - 4e-12);
    result_.lower_bound = proven ? result_.cost : bound;
  }

  const Problem& problem_;
  const SolveOptions& options_;
  Budget budget_;
  Solution result_;
};

}  // namespace

Solution solve_dp(const Problem& problem, const SolveOptions& options) {
  return Search(problem, options).run();
}

}  // namespace autopar
