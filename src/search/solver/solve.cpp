// The searcher: first without the memory limit, which is exact on most graphs; then, if its answer
// does not fit, with multipliers for the times that are too tight.
#include <algorithm>
#include <cmath>
#include <utility>

#include "search/solver/explore.hpp"
#include "search/solver/reduce.hpp"

namespace autopar {
namespace {

using namespace solver;

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
    if (!result_.feasible && found.value < kInfinity) {
      net = build_network(problem_, true);
      found = explore(*net, kInfinity, budget_);
      offer(found.labels);
      settle_bound(std::max(found.bound, result_.unlimited_lower_bound));
    }
    result_.interrupted = budget_.interrupted;
    return result_;
  }

 private:
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
