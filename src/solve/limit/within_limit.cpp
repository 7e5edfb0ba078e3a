#include "solve/limit/within_limit.hpp"

#include <algorithm>
#include <set>

#include "solve/bound/find_prices.hpp"
#include "solve/network/reduce.hpp"
#include "solve/plans/repair.hpp"
#include "solve/plans/sift.hpp"

namespace autopar::solver {
namespace {

constexpr int kRounds = 30;
constexpr std::size_t kManyTimes = 8, kWorstTimes = 4;
constexpr double kManyEntries = 5e5;  // of all tables; smaller problems need no such beginning
constexpr double kPricesPart = 0.3;   // of the work that is left, for where to begin
constexpr double kRoundPart = 0.2;    // of the work that is left, for a round before the last
// Of the work that is left: where that is not enough to converge, nothing else is worth it.
constexpr double kSiftPart = 1.5, kSiftPartOfTime = 0.9;
constexpr std::size_t kNodesToSift = 200;  // fewer are looked through
// Where time is there to be used up, only graphs that are too large for anything else.
constexpr std::size_t kManyNodesToSift = 40000;
// A gap below this part of the value is left, where it took more than that work.
constexpr double kCloseEnough = 2.5e-3;
constexpr double kDearSift = 3e8;
constexpr double kRepairPart = 0.05;  // of the work that is left, for a repair

bool is_to_sift(const Problem& problem, const Budget& budget) {
  if (!budget.patient) return problem.nodes.size() >= kNodesToSift;
  return problem.nodes.size() >= kManyNodesToSift && problem.edges.size() >= problem.nodes.size();
}

class LimitedSearch {
 public:
  LimitedSearch(const Problem& problem, double cutoff, Budget& budget, const Report& report)
      : problem_(problem),
        cutoff_(cutoff),
        budget_(budget),
        report_(report),
        all_(build_network(problem, maximal_times(problem))),
        to_sift_(is_to_sift(problem, budget)) {
    label_of_.resize(problem.nodes.size());
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
      label_of_[n].assign(problem.nodes[n].cost.size(), 0);
      const Labels& choices = all_->origin_labels[n];
      for (std::size_t l = 0; l < choices.size(); ++l) {
        label_of_[n][at(choices[l])] = static_cast<int>(l);
      }
    }
  }

  Found run(const std::vector<int>& start) {
    if (all_->impossible) {
      raise(cutoff_);
      return finish();
    }
    if (budget_.patient && entries() > kManyEntries && !to_sift_) {
      begin_with_all_times();
    } else {
      take(start);
    }
    bool whole = !budget_.patient;  // the first rounds must leave time for others
    for (int round = 0; round < kRounds && bound_ < cutoff_ && !budget_.over(); ++round) {
      const std::size_t before = times_.size();
      {
        const BudgetShare share(budget_, whole ? 1.0 : kRoundPart);
        solve_relaxed();
      }
      if (to_sift_ && bound_ < cutoff_) {
        const double work = budget_.work;
        sift_met();
        const bool close = bound_ >= cutoff_ * (1 - kCloseEnough);
        if (close && budget_.work - work > budget_.effort * kDearSift) break;
      }
      // Without further times, the relaxed problem is the whole as far as can be seen.
      if (times_.size() == before && whole) break;
      whole = whole || times_.size() == before;
    }
    return finish();
  }

 private:
  double entries() const {
    double sum = 0;
    for (const CostTable& table : problem_.tables) {
      sum += static_cast<double>(table.rows) * static_cast<double>(table.columns);
    }
    return sum;
  }

  // Prices for where the limit matters most, before it is looked at time by time.
  void begin_with_all_times() {
    const BudgetShare share(budget_, kPricesPart);
    const std::unique_ptr<Network> net = build_network(problem_, maximal_times(problem_));
    const double work = net->algebra.work();
    reduce(*net);
    budget_.add(net->algebra.work() - work);
    if (net->impossible) return raise(cutoff_);
    const Offer offer = [this](const std::vector<int>& choices) {
      std::set<int> times = times_;
      take(choices);
      times_ = std::move(times);
      return cutoff_;
    };
    raise(find_prices(*net, cutoff_, budget_, offer, prices_));
    for (const auto& [time, price] : prices_) times_.insert(time);
  }

  // What was met so far differs in parts that choose apart, if anything does.
  void sift_met() {
    const bool timed = budget_.deadline != Budget::Clock::time_point::max();
    const BudgetShare share(budget_, timed ? kSiftPartOfTime : kSiftPart);
    const SiftState state = {
        .labels_of = [this](const auto& choices) { return labels_of(choices); },
        .take =
            [this](std::vector<int> labels, bool improve) {
              if (improve) return repair_and_keep(std::move(labels));
              if (fits(labels)) keep(std::move(labels));
            },
        .raise = [this](double bound) { raise(bound); },
        .best = best_labels_,
        .bound = bound_,
        .cutoff = cutoff_};
    sift(problem_, *all_, std::move(met_), prices_, budget_, state);
    to_sift_ = false;
  }

  // Solves with the rows so far, unless the labelling that its multipliers favour does not fit at
  // further times: these come first.
  void solve_relaxed() {
    const std::unique_ptr<Network> net =
        build_network(problem_, std::vector<int>(times_.begin(), times_.end()));
    const std::size_t times = times_.size();
    std::vector<int> minimiser;
    std::vector<std::vector<int>> met;
    const GapOptions options = {.prices = &prices_,
                                .minimiser = &minimiser,
                                .met = to_sift_ ? &met : nullptr,
                                .enough = [&] {
                                  take(minimiser);
                                  return times_.size() > times;
                                }};
    double relaxed_cutoff = cutoff_;
    close_gap(
        *net, relaxed_cutoff, budget_,
        [this](double bound, const std::vector<int>& choices) {
          raise(bound);
          if (!choices.empty()) take(choices);
        },
        options);
    for (const std::vector<int>& choices : met) met_.push_back(labels_of(choices));
  }

  std::vector<int> labels_of(const std::vector<int>& choices) const {
    std::vector<int> labels(choices.size());
    for (std::size_t n = 0; n < choices.size(); ++n) labels[n] = label_of_[n][at(choices[n])];
    return labels;
  }

  // Rows for where these choices do not fit; then the choices themselves, repaired.
  void take(const std::vector<int>& choices) {
    if (choices.empty()) return;
    std::vector<int> labels = labels_of(choices);
    add_overfull_times(labels);
    if (to_sift_) met_.push_back(labels);
    repair_and_keep(std::move(labels));
  }

  void repair_and_keep(std::vector<int> labels) {
    double work = 0;
    const double allowed = kRepairPart * std::min(budget_.work_limit - budget_.work, 1e10);
    const bool repaired = repair(*all_, labels, allowed, work);
    budget_.add(work);
    if (repaired) keep(std::move(labels));
  }

  bool fits(const std::vector<int>& labels) const {
    const Vector uses = uses_of(*all_, labels);
    for (std::size_t r = 0; r < uses.size(); ++r) {
      if (uses[r] > all_->capacity[r]) return false;
    }
    return true;
  }

  // Labels within the limit, where they are better.
  void keep(std::vector<int> labels) {
    // What rounds to the cutoff ends the search for anything below it, so it must not get lost.
    const double value = value_of(*all_, labels);
    if (!(value < best_.value)) return;
    cutoff_ = std::min(cutoff_, budget_.strictly_below(value));
    best_.value = value;
    best_.labels = lift(*all_, labels);
    best_labels_ = std::move(labels);
    report_(bound_, best_.labels);
  }

  // Of every stretch of time that does not fit, the worst time; where these are many, the worst of
  // all: the others mostly follow it.
  void add_overfull_times(const std::vector<int>& labels) {
    const Vector uses = uses_of(*all_, labels);
    std::vector<std::pair<double, int>> worst;  // how much is missing, when
    bool within = true;
    for (std::size_t r = 0; r < uses.size(); ++r) {
      const double over = uses[r] - all_->capacity[r];
      if (over > 0 && within) worst.emplace_back(over, all_->row_time[r]);
      if (over > 0 && over > worst.back().first) worst.back() = {over, all_->row_time[r]};
      within = !(over > 0);
    }
    std::stable_sort(worst.begin(), worst.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    if (!budget_.patient && worst.size() > kManyTimes) worst.resize(kWorstTimes);
    for (const auto& [over, time] : worst) times_.insert(time);
  }

  void raise(double bound) {
    if (!(bound > bound_)) return;
    bound_ = std::min(bound, cutoff_);
    report_(bound_, {});
  }

  Found finish() {
    best_.bound = bound_;
    return best_;
  }

  const Problem& problem_;
  double cutoff_;
  Budget& budget_;
  const Report& report_;
  std::unique_ptr<Network> all_;  // every time that can be the tightest; never reduced
  std::vector<Labels> label_of_;  // per node and choice
  std::set<int> times_;
  Prices prices_;
  double bound_ = 0;
  Found best_;
  std::vector<int> best_labels_;  // of all_
  bool to_sift_;
  std::vector<std::vector<int>> met_;  // until then; labels of all_
};

}  // namespace

Found search_within_limit(const Problem& problem, const std::vector<int>& start, double cutoff,
                          Budget& budget, const Report& report) {
  return LimitedSearch(problem, cutoff, budget, report).run(start);
}

}  // namespace autopar::solver
