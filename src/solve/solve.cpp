// The searcher, stage by stage: what runs when, and with which part of the work.
//
//   presolve          where many choices are forbidden: a smaller problem with the same answer
//   without limit     a first look, then the proof: exact on most graphs
//   within limit      only where what was found does not fit
//   least peak        only where nothing fits
//   within limit      once more where there is time to be used up (patient)
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "solve/effort.hpp"
#include "solve/learnt.hpp"
#include "solve/limit/least_peak.hpp"
#include "solve/limit/within_limit.hpp"
#include "solve/network/presolve.hpp"
#include "solve/without_limit.hpp"

namespace autopar {
namespace {

using namespace solver;
using namespace solver::effort::solve;
using namespace solver::effort::work;

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
        presolved_((options.left_out & bit_of(SolveStage::kPresolve)) != 0 ? std::nullopt
                                                                           : presolve(problem)),
        problem_(presolved_ ? presolved_->problem : problem),
        limited_(problem_.use_limit < kInfinity),
        race_(problem_, budget_) {
    set(options);
    look_cutoff_ = options.cutoff;
    race_.progress = [this](const Race&) { tell(); };
  }

  // In place of the look.
  Solution begin_from(const Learnt& learnt) {
    looked_ = true;
    look_work_ = learnt.look_work;
    look_cutoff_ = learnt.look_cutoff;
    budget_.add(learnt.work);
    start_ = learnt.start;
    settled_ = learnt.settled;
    unlimited_bound_ = learnt.unlimited_bound;
    learnt_prices_ = learnt.prices;
    done_without_limit_ = learnt_prices_.has_value();
    unlimited_fits_ = done_without_limit_ && !start_.empty() && within_limit(start_);
    race_.offer(learnt.least_peak_choices);
    race_.offer(learnt.choices);
    race_.raise(learnt.bound);
    return so_far();
  }

  LearntOfProblem learnt() const {
    Learnt result;
    result.look_work = look_work_;
    result.look_cutoff = look_cutoff_;
    result.start = start_;
    result.bound = race_.bound;
    result.unlimited_bound = unlimited_bound_;
    result.prices = limited_search_ != nullptr ? limited_search_->learnt() : learnt_prices_;
    // Else what was done without the limit may have been cut off: by another cutoff it is worth it.
    result.work = result.prices ? budget_.work : look_work_;
    result.settled = settled_;
    result.choices = race_.choices;
    result.least_peak_choices = race_.least_peak_choices;
    return std::make_shared<const Learnt>(std::move(result));
  }

  // A first look at the problem without the memory limit.
  Solution begin() {
    look();
    return so_far();
  }

  // The rest; once more where the solution was deferred.
  Solution finish(const SolveOptions& options) {
    set(options);
    deferred_ = false;
    if (!looked_) look();
    if (!done_without_limit_) solve_without_limit();
    if (deferred_) return so_far();
    const bool open = !race_.closed() && !(race_.bound >= options_.cutoff);
    const bool priced = limited_search_ != nullptr || learnt_prices_;
    if (open && limited_ && (priced || !close_enough()) && !unlimited_fits_) solve_with_limit();
    if (options_.patient && !race_.closed()) use_up_the_time();
    return so_far();
  }

 private:
  // The clock and the cutoff count from here on.
  void set(const SolveOptions& options) {
    options_ = options;
    budget_.stop = options.stop;
    budget_.effort = options.effort;
    budget_.work_limit = options.effort * (kWorkLimit + kPasses * pass_work(whole_));
    if (options.time_limit < kInfinity) {
      budget_.deadline = Budget::after(options.time_limit - options.used_before);
      if (options.patient) budget_.work_limit = kWorkPerSecond * options.time_limit;
      budget_.counted = options.patient;
      budget_.patient = options.patient && presolved_;
    }
    race_.cutoff = options.cutoff;
    race_.gap = options.gap;
    race_.left_out = options.left_out;
    race_.raise(options.known_bound);
    race_.check_gap();
  }

  void look() {
    looked_ = true;
    const Noted noted(race_, "look");
    free_ = std::make_unique<FreeSearch>(race_);
    free_->look();
    start_ = free_->choices();
    unlimited_bound_ = race_.bound;
    look_work_ = budget_.work;
  }

  // At a network that was not kept, as the first time.
  void look_again() {
    budget_.work -= look_work_;  // counted once
    race_.cutoff = look_cutoff_;
    look();
    race_.cutoff = options_.cutoff;
  }

  void solve_without_limit() {
    const bool fits = start_.empty() || within_limit(start_);
    const bool patient = budget_.patient;
    const bool of_use = !limited_ || fits || patient;
    if (of_use || look_work_ < kCheapLook) {
      if (free_ == nullptr) look_again();
      const Noted noted(race_, "without limit");
      const BudgetShare share(budget_, unlimited_part(), limited_ && !patient ? kUnlimitedTime : 0);
      double most = limited_ && patient ? kPatientUnlimitedWork : kInfinity;
      // Where what is favoured does not fit, a proof without the limit is of little use.
      if (!of_use) most = options_.effort * kCheapWork;
      const BudgetShare capped(budget_, BudgetShare::Most{most});
      free_->tighten_bound();
      unlimited_bound_ = race_.bound;
      deferred_ = options_.until == SolveOptions::Until::kProof && free_->open();
      if (deferred_) return;
      free_->close();
      // What a search that was cut short ends with may be dear, where it fits: prices begin from
      // what is favoured.
      const bool is_dear = !of_use && !free_->choices().empty() && within_limit(free_->choices());
      if (!free_->choices().empty() && !is_dear) start_ = free_->choices();
    }
    if (free_ != nullptr) settled_ = free_->messages();
    free_ = nullptr;
    done_without_limit_ = true;
    unlimited_fits_ = !start_.empty() && within_limit(start_);
    unlimited_bound_ = race_.bound;
  }

  // Where what is favoured without the limit fits, the limit is not what matters.
  double unlimited_part() const {
    if (!limited_ || budget_.patient) return limited_ ? kUnlimitedPart : 1.0;
    if (!free_->choices().empty() && within_limit(free_->choices())) return 1.0;
    return race_.feasible() ? kFittingPart : kUnlimitedPart;
  }

  bool within_limit(const std::vector<int>& choices) const {
    return evaluate(problem_, choices).peak_use <= problem_.use_limit;
  }

  void solve_with_limit() {
    deferred_ = options_.until <= SolveOptions::Until::kLimit;
    if (deferred_) return;
    {
      const Noted noted(race_, "within limit");
      const BudgetShare share(budget_, budget_.patient ? kLimitedPart : 1.0);
      using Until = SolveOptions::Until;
      if (limited_search_ == nullptr) {
        limited_search_ = std::make_unique<LimitedSearch>(race_, start_, settled_);
        price();
      }
      deferred_ = options_.until == Until::kPlans && !race_.closed();
      if (deferred_) return;
      limited_search_->find_plans();
      // With the effort spent there is nothing to go on with.
      deferred_ = options_.until == Until::kClose && !race_.closed() && !budget_.over();
      if (deferred_) return;
      if (options_.until != Until::kEnd) note_prices();
      limited_search_->close();
      limited_search_ = nullptr;
    }
    if (race_.feasible() || options_.cutoff < kInfinity) return;
    if (race_.bound == kInfinity && !options_.least_peak) return;
    // Either nothing fits, then how much would have to; or nothing was found, then any plan will
    // do.
    const Noted noted(race_, "least peak");
    const BudgetShare share(budget_, BudgetShare::Most{kPeakPart * budget_.work_limit});
    const double enough = race_.bound < kInfinity ? problem_.use_limit : 0;
    peak_proven_ = find_least_peak(race_, enough);
  }

  // What time is left goes by the clock.
  void use_up_the_time() {
    if (proven()) return;
    budget_.work_limit = kInfinity;
    budget_.counted = false;
    const bool again = limited_ && !deferred_ && race_.feasible() && !unlimited_fits_;
    if (again && !budget_.over()) solve_with_limit();
  }

  // A mesh that this cutoff ends may be worth more plans below another one.
  void note_prices() {
    learnt_prices_ = limited_search_->learnt();
    if (learnt_prices_) learnt_prices_->has_plans = false;
  }

  // From where another search ended, if one did.
  void price() {
    if (!learnt_prices_) return limited_search_->price();
    limited_search_->price_from(std::move(*learnt_prices_));
    learnt_prices_.reset();
  }

  bool close_enough() const {
    return race_.feasible() && !options_.patient && budget_.work > options_.effort * kCheapWork &&
           race_.cost - race_.bound <= effort::solve::kCloseEnough / options_.effort * race_.cost;
  }

  // What is left below the cost is less than the sums' rounding.
  bool proven() const { return race_.bound >= race_.cost * (1 - 4e-12); }

  void tell() {
    if (!options_.progress) return;
    std::vector<int> lifted;
    if (race_.feasible()) lifted = lifted_choices();
    options_.progress(
        {race_.cost, std::min(race_.bound, race_.cost), race_.feasible() ? &lifted : nullptr});
  }

  std::vector<int> lifted_choices() const {
    return presolved_ ? lift(*presolved_, race_.choices) : race_.choices;
  }

  Solution so_far() const {
    Solution result;
    result.stages = race_.reports;
    result.interrupted = budget_.interrupted;
    result.deferred = deferred_;
    result.unlimited_lower_bound = unlimited_bound_;
    result.lower_bound = race_.bound;
    result.least_peak_use = race_.least_peak;
    result.tightest_time = race_.least_peak_time;
    result.least_peak_proven = peak_proven_;
    if (race_.feasible()) {
      result.choices = lifted_choices();
      const Evaluation found = evaluate(whole_, result.choices);
      result.feasible = found.cost < options_.cutoff;
      result.cost = found.cost;
      result.peak_use = found.peak_use;
      if (proven()) result.lower_bound = found.cost;
    }
    const bool enough = race_.budget.enough && !result.feasible;
    result.cut_off =
        !result.feasible && options_.cutoff < kInfinity && (enough || race_.bound >= race_.below());
    if (!result.feasible) {
      result.choices.clear();
      result.cost = kInfinity;
    }
    result.end = end_of(result);
    return result;
  }

  SolveEnd end_of(const Solution& result) const {
    if (result.feasible ? proven() : result.lower_bound == kInfinity) return SolveEnd::kProven;
    if (budget_.enough && result.feasible) return SolveEnd::kGap;
    if (result.cut_off) return SolveEnd::kCutOff;
    if (result.deferred) return SolveEnd::kDeferred;
    return result.interrupted ? SolveEnd::kTime : SolveEnd::kEffort;
  }

  const Problem& whole_;                      // the one to answer
  const std::optional<Presolved> presolved_;  // where there is one, the one to solve
  const Problem& problem_;
  const bool limited_;
  SolveOptions options_;
  Budget budget_;
  Race race_;
  std::unique_ptr<FreeSearch> free_;               // until that is done
  std::unique_ptr<LimitedSearch> limited_search_;  // between its prices and its end
  std::shared_ptr<const CarriedMessages> settled_;
  double unlimited_bound_ = 0;
  std::vector<int> start_;       // the best found without the limit
  bool unlimited_fits_ = false;  // and that is within it
  double look_work_ = 0, look_cutoff_ = kInfinity;
  bool done_without_limit_ = false;
  std::optional<LearntPrices> learnt_prices_;  // by a search before this one
  bool looked_ = false;
  bool deferred_ = false;
  bool peak_proven_ = false;
};

}  // namespace

const std::vector<StageRow>& solve_stages() {
  static const std::vector<StageRow> rows = {{SolveStage::kPresolve, "presolve"},
                                             {SolveStage::kFold, "fold"},
                                             {SolveStage::kColumns, "columns"},
                                             {SolveStage::kMix, "mix"},
                                             {SolveStage::kWindows, "windows"}};
  return rows;
}

const char* name_of(SolveEnd end) {
  switch (end) {
    case SolveEnd::kProven:
      return "proven";
    case SolveEnd::kGap:
      return "the gap that was asked for is reached";
    case SolveEnd::kCutOff:
      return "cannot beat the best plan by enough";
    case SolveEnd::kDeferred:
      return "deferred";
    case SolveEnd::kTime:
      return "the time limit was reached";
    case SolveEnd::kEffort:
      return "the effort of the search is spent";
  }
  return "";
}

Solution solve_dp(const Problem& problem, const SolveOptions& options) {
  return Search(problem, options).finish(options);
}

BegunSolve begin_dp(const Problem& problem, const SolveOptions& options,
                    const LearntOfProblem& learnt) {
  const auto search = std::make_shared<Search>(problem, options);
  Solution so_far = learnt == nullptr ? search->begin() : search->begin_from(*learnt);
  return {std::move(so_far), [search](const SolveOptions& now) { return search->finish(now); },
          [search] { return search->learnt(); }};
}

}  // namespace autopar
