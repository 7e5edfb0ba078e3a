// The searcher: first without the memory limit, which is exact on most graphs; then, if its answer
// does not fit, with multipliers for the times that are too tight.
#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/bound/kernel.hpp"
#include "solve/close_gap.hpp"
#include "solve/limit/least_peak.hpp"
#include "solve/limit/within_limit.hpp"
#include "solve/network/presolve.hpp"
#include "solve/patient/neighbourhood.hpp"

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
// What a second of a patient search is worth. Half of what a core does in one, so that the clock
// does not end what could be counted.
constexpr double kWorkPerSecond = 1e8;
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
  Search(const Problem& problem, const SolveOptions& options)
      : whole_(problem),
        presolved_(presolve(problem)),
        problem_(presolved_ ? presolved_->problem : problem),
        limited_(problem_.use_limit < kInfinity) {
    set(options);
  }

  // A first look at the problem without the memory limit.
  Solution begin() {
    net_ = build_network(problem_, {});
    rest_ = begin_closing(*net_, options_.cutoff, budget_, reporter(), gap_options());
    result_.unlimited_lower_bound = result_.lower_bound;
    return so_far();
  }

  // Without one.
  void prepare() {
    net_ = build_network(problem_, {});
    rest_ = [this](double cutoff) {
      return close_gap(*net_, cutoff, budget_, reporter(), gap_options());
    };
  }

  // Once more where the solution was deferred.
  Solution finish(const SolveOptions& options) {
    set(options);
    result_.deferred = false;
    if (rest_) {
      const Found unlimited = solve_without_limit();
      if (unlimited.bound == kInfinity) return so_far();
    }
    if (result_.lower_bound >= options_.cutoff) result_.cut_off = true;
    if (result_.cut_off || budget_.enough) return so_far();
    if (limited_ && !proven() && !close_enough() && !unlimited_fits_) {
      result_.deferred = options_.defer_limit;
      if (!options_.defer_limit) solve_with_limit();
    }
    // What time is left goes by the clock.
    if (options_.patient && !proven()) {
      budget_.work_limit = kInfinity;
      budget_.counted = false;
      const bool again = limited_ && !result_.deferred && result_.feasible && !unlimited_fits_;
      if (again && !budget_.over()) solve_with_limit();
    }
    if (options_.patient && !result_.deferred && result_.feasible && !proven() && !budget_.over()) {
      search_neighbourhoods(problem_, best_choices_, result_.lower_bound, options_.threads, budget_,
                            reporter());
    }
    return so_far();
  }

 private:
  // The clock and the cutoff count from here on.
  void set(const SolveOptions& options) {
    options_ = options;
    budget_.stop = options.stop;
    budget_.effort = options.effort;
    budget_.work_limit = options.effort * (kWorkLimit + kPasses * pass_work(whole_));
    result_.lower_bound = std::max(result_.lower_bound, options.known_bound);
    if (options.time_limit < kInfinity) {
      budget_.deadline = Budget::after(options.time_limit - options.used_before);
      if (options.patient) budget_.work_limit = kWorkPerSecond * options.time_limit;
      budget_.counted = options.patient;
      budget_.patient = options.patient && presolved_;
    }
    stop_at_gap();
  }

  // What was asked for is there: the best plan, of this problem or of another one, is as close to
  // the bound as that.
  void stop_at_gap() {
    const double best = std::min(result_.cost, options_.cutoff);
    budget_.enough =
        options_.gap > 0 && best < kInfinity && result_.lower_bound >= best * (1 - options_.gap);
    if (budget_.enough && !(result_.cost < options_.cutoff)) result_.cut_off = true;
  }

  GapOptions gap_options() {
    return {.minimiser = &start_, .enough = [this] {
              spend_by_fit();
              return false;
            }};
  }

  // Where what is favoured without the limit fits, the limit is not what matters.
  void spend_by_fit() {
    if (!limited_ || budget_.patient) return;
    const bool favoured = !start_.empty() && within_limit(start_);
    if (favoured || result_.feasible) share_.reset();
    if (!favoured && result_.feasible) share_.emplace(budget_, kFittingPart);
  }

  Found solve_without_limit() {
    share_.emplace(budget_, limited_ ? kUnlimitedPart : 1.0,
                   limited_ && !budget_.patient ? kUnlimitedTime : 0.0);
    if (limited_ && budget_.patient) {
      budget_.work_limit = std::min(budget_.work_limit, budget_.work + kPatientUnlimitedWork);
    }
    Found found = rest_(options_.cutoff);
    share_.reset();
    rest_ = nullptr;
    net_ = nullptr;
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
    budget_.work = budget.work;
    budget_.interrupted |= budget.interrupted;
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
      stop_at_gap();
      if (options_.progress) {
        options_.progress({result_.cost, std::min(result_.lower_bound, result_.cost),
                           result_.feasible ? &result_.choices : nullptr});
      }
    };
  }

  void offer(const std::vector<int>& choices) {
    std::vector<int> lifted = presolved_ ? lift(*presolved_, choices) : choices;
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
    return result_.feasible && !options_.patient && budget_.work > options_.effort * kCheapWork &&
           result_.cost - result_.lower_bound <= kCloseEnough / options_.effort * result_.cost;
  }

  // What is left below the cost is less than the sums' rounding.
  bool proven() const { return result_.lower_bound >= result_.cost * (1 - 4e-12); }

  Solution so_far() {
    if (proven()) result_.lower_bound = result_.cost;
    result_.cut_off = result_.cut_off && !(result_.cost < options_.cutoff);
    result_.interrupted = budget_.interrupted;
    Solution result = result_;
    if (result.cut_off || !(result.cost < options_.cutoff)) {
      result.feasible = false;
      result.choices.clear();
      result.cost = kInfinity;
    }
    return result;
  }

  const Problem& whole_;                      // the one to answer
  const std::optional<Presolved> presolved_;  // where there is one, the one to solve
  const Problem& problem_;
  const bool limited_;
  SolveOptions options_;
  Budget budget_;
  std::optional<BudgetShare> share_;  // of the work without the limit
  std::unique_ptr<Network> net_;      // without the limit
  RestOfClosing rest_;                // of the search there
  Solution result_;
  std::vector<int> best_choices_;  // of the presolved problem
  std::vector<int> least_peak_choices_;
  std::vector<int> start_;       // the best found without the limit
  bool unlimited_fits_ = false;  // and that is within it
};

}  // namespace

Solution solve_dp(const Problem& problem, const SolveOptions& options) {
  Search search(problem, options);
  search.prepare();
  return search.finish(options);
}

BegunSolve begin_dp(const Problem& problem, const SolveOptions& options) {
  const auto search = std::make_shared<Search>(problem, options);
  Solution so_far = search->begin();
  return {std::move(so_far), [search](const SolveOptions& now) { return search->finish(now); }};
}

}  // namespace autopar
