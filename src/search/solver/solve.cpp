// The searcher: first without the memory limit, which is exact on most graphs; then, if its answer
// does not fit, with multipliers for the times that are too tight.
#include <algorithm>
#include <cmath>
#include <utility>

#include "search/solver/close_gap.hpp"
#include "search/solver/kernel.hpp"
#include "search/solver/least_peak.hpp"
#include "search/solver/neighbourhood.hpp"
#include "search/solver/presolve.hpp"
#include "search/solver/within_limit.hpp"

namespace autopar {
namespace {

using namespace solver;

// Table entries; a few nanoseconds each. Where the caller gives a time, that is the limit.
constexpr double kWorkLimit = 1.5e9;
constexpr double kPasses = 60;          // over all tables, more on large problems
constexpr double kUnlimitedPart = 0.2;  // of it before the limit is looked at, if there is one
constexpr double kFittingPart = 0.6;    // where something that was found fits
constexpr double kUnlimitedTime = 0.5;  // where time is what is limited
constexpr double kPatientUnlimitedWork = 1e8;
constexpr double kLimitedPart = 0.7;  // where there is time to be used
constexpr double kPeakPart = 0.3;
// Where a plan that fits is this close to the bound without the limit, and that was work enough,
// the limit is not looked at.
constexpr double kCloseEnough = 1e-3;
constexpr double kCheapWork = 3e7;

double pass_work(const Problem& problem) {
  double entries = 0;
  for (const ProblemEdge& edge : problem.edges) {
    entries += static_cast<double>(problem.nodes[at(edge.from)].cost.size()) *
               static_cast<double>(problem.nodes[at(edge.to)].cost.size());
  }
  return kRowEntryWork * entries;
}

class Search {
 public:
  // `presolved`, where there is one, is the problem to solve, and `problem` the one to answer.
  Search(const Problem& problem, const Presolved* presolved, const SolveOptions& options)
      : whole_(problem),
        presolved_(presolved),
        problem_(presolved != nullptr ? presolved->problem : problem),
        options_(options) {
    budget_.stop = options.stop;
    budget_.tolerance = std::max(budget_.tolerance, options.gap);
    budget_.work_limit = kWorkLimit + kPasses * pass_work(problem);
    if (options.time_limit < kInfinity) {
      budget_.deadline = Budget::after(options.time_limit);
      budget_.work_limit = kInfinity;
      budget_.patient = options.patient && presolved != nullptr;
    }
  }

  Solution run() {
    const bool limited = problem_.use_limit < kInfinity;
    const Found unlimited = solve_without_limit(limited);
    if (result_.cut_off || unlimited.bound == kInfinity) return finish();
    if (limited && !proven() && !close_enough() && !unlimited_fits_) {
      result_.deferred = options_.defer_limit;
      if (!options_.defer_limit) solve_with_limit();
    }
    if (budget_.patient && !result_.deferred && result_.feasible && !proven() && !budget_.over()) {
      search_neighbourhoods(problem_, best_choices_, result_.lower_bound, options_.threads, budget_,
                            reporter());
    }
    return finish();
  }

 private:
  Found solve_without_limit(bool limited) {
    std::optional<BudgetShare> share(std::in_place, budget_, limited ? kUnlimitedPart : 1.0,
                                     limited && !budget_.patient ? kUnlimitedTime : 0.0);
    if (limited && budget_.patient) {
      budget_.work_limit = std::min(budget_.work_limit, budget_.work + kPatientUnlimitedWork);
    }
    const std::unique_ptr<Network> net = build_network(problem_, {});
    // Where what is favoured without the limit fits, the limit is not what matters.
    const auto fits = [&] {
      if (!limited || budget_.patient) return false;
      const bool favoured = !start_.empty() && within_limit(start_);
      if (favoured || result_.feasible) share.reset();
      if (!favoured && result_.feasible) share.emplace(budget_, kFittingPart);
      return false;
    };
    const GapOptions gap_options = {.minimiser = &start_, .enough = fits};
    Found found = close_gap(*net, options_.cutoff, budget_, reporter(), gap_options);
    if (!found.labels.empty()) start_ = found.labels;
    unlimited_fits_ = !found.labels.empty() && within_limit(start_);
    result_.unlimited_lower_bound = result_.lower_bound;
    return found;
  }

  bool within_limit(const std::vector<int>& choices) const {
    return evaluate(problem_, choices).peak_use <= problem_.use_limit;
  }

  void solve_with_limit() {
    const double cutoff = std::min(options_.cutoff, budget_.strictly_below(result_.cost));
    const Found found = [&] {
      const BudgetShare share(budget_, budget_.patient ? kLimitedPart : 1.0);
      return search_within_limit(problem_, start_, cutoff, budget_, reporter());
    }();
    if (result_.feasible || options_.cutoff < kInfinity) return;
    // Either nothing fits, then how much would have to; or nothing was found, then any plan will
    // do.
    LeastPeak peak = {result_.least_peak_use, result_.tightest_time, false, least_peak_choices_};
    Budget budget = budget_;
    budget.work_limit = budget.work + kPeakPart * budget_.work_limit;
    const double enough = found.bound < kInfinity ? problem_.use_limit : 0;
    peak = find_least_peak(problem_, std::move(peak), enough, budget);
    if (!peak.choices.empty()) offer(peak.choices);
    result_.least_peak_use = peak.use;
    result_.tightest_time = peak.time;
    result_.least_peak_proven = peak.proven;
  }

  Report reporter() {
    return [this](double bound, const std::vector<int>& choices) {
      if (!choices.empty()) offer(choices);
      if (bound >= options_.cutoff && options_.cutoff < kInfinity) result_.cut_off = true;
      result_.lower_bound = std::max(result_.lower_bound, bound);
      if (options_.progress) {
        options_.progress({result_.cost, std::min(result_.lower_bound, result_.cost),
                           result_.feasible ? &result_.choices : nullptr});
      }
    };
  }

  void offer(const std::vector<int>& choices) {
    std::vector<int> lifted = presolved_ != nullptr ? lift(*presolved_, choices) : choices;
    const Evaluation found = evaluate(whole_, lifted);
    if (found.peak_use < result_.least_peak_use) {
      result_.least_peak_use = found.peak_use;
      result_.tightest_time = found.peak_time;
      least_peak_choices_ = choices;
    }
    if (found.peak_use > problem_.use_limit || !(found.cost < result_.cost)) return;
    result_.feasible = true;
    best_choices_ = choices;
    result_.choices = std::move(lifted);
    result_.cost = found.cost;
    result_.peak_use = found.peak_use;
  }

  bool close_enough() const {
    return result_.feasible && options_.time_limit == kInfinity && budget_.work > kCheapWork &&
           result_.cost - result_.lower_bound <= kCloseEnough * result_.cost;
  }

  // What is left below the cost is less than the sums' rounding.
  bool proven() const { return result_.lower_bound >= result_.cost * (1 - 4e-12); }

  Solution finish() {
    if (proven()) result_.lower_bound = result_.cost;
    result_.cut_off = result_.cut_off && !(result_.cost < options_.cutoff);
    if (result_.cut_off || !(result_.cost < options_.cutoff)) {
      result_.feasible = false;
      result_.choices.clear();
      result_.cost = kInfinity;
    }
    result_.interrupted = budget_.interrupted;
    return result_;
  }

  const Problem& whole_;
  const Presolved* presolved_;
  const Problem& problem_;
  const SolveOptions& options_;
  Budget budget_;
  Solution result_;
  std::vector<int> best_choices_;  // of the presolved problem
  std::vector<int> least_peak_choices_;
  std::vector<int> start_;       // the best found without the limit
  bool unlimited_fits_ = false;  // and that is within it
};

}  // namespace

Solution solve_dp(const Problem& problem, const SolveOptions& options) {
  const std::optional<Presolved> presolved = presolve(problem);
  return Search(problem, presolved ? &*presolved : nullptr, options).run();
}

}  // namespace autopar
