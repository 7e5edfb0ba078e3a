#include "search/solver/close_gap.hpp"

#include <algorithm>

#include "search/solver/multipliers.hpp"
#include "search/solver/reduce.hpp"

namespace autopar::solver {
namespace {

constexpr int kRootPasses = 100;
constexpr int kRootSteps = 1000;
// How far above the bound the first trial looks, as a part of the gap; the next ones look further
// or less far, as it went.
constexpr double kFirstPart = 1.0 / 16;
constexpr double kLeastPart = 1.0 / 512;
constexpr double kGuesses[] = {1.0 / 64, 1.0 / 16, 1.0 / 4};
constexpr double kGuessWork = 0.05;
constexpr double kTrialWork = 0.3;  // of the work that is left, for a trial
// A gap below this part of the value is worth only so much work.
struct SmallGap {
  double gap, work;
};
constexpr SmallGap kSmallGaps[] = {{1e-5, 3e7}, {1e-4, 5e7}, {5e-3, 1e8}};
constexpr int kSettlingPasses = 40;
constexpr StepReach kReaches[] = {{0.05, 1e-3}, {1e-3, 1e-6}};
constexpr double kRowsPart = 0.2;  // of the work that is left, for the steps of a reach
// A gap below this part of the value is left, unless it took less than that work.
constexpr double kCloseEnough = 1e-4;
constexpr double kCheapWork = 3e7;

class GapClosing {
 public:
  GapClosing(Network& net, double cutoff, Budget& budget, const Report& report,
             const GapOptions& options)
      : net_(net), cutoff_(cutoff), budget_(budget), report_(report), options_(options) {}

  Found run() {
    const double before = net_.algebra.work();
    reduce(net_);
    budget_.add(net_.algebra.work() - before);
    if (net_.impossible || net_.constant >= cutoff_) {
      raise(cutoff_);
      return finish(bound_);
    }
    bound_ = net_.constant;
    report_(bound_, {});
    Dual dual(net_);
    tighten_root(dual);
    if (options_.enough && options_.enough()) return finish(bound_);
    const double limit = budget_.work_limit;
    for (double part : kGuesses) {
      limit_small_gap(limit);
      if (bound_ < cutoff_ && cutoff_ < kInfinity) guess(dual, part);
    }
    double part = cutoff_ < kInfinity ? kFirstPart : 1.0;
    while (bound_ < cutoff_ && !budget_.over() && part >= kLeastPart) {
      limit_small_gap(limit);
      const bool was_free = cutoff_ == kInfinity;
      const bool closed = attempt(dual, part);
      part = was_free && cutoff_ < kInfinity ? kFirstPart
             : closed                        ? std::min(1.0, 2 * part)
                                             : part / 8;
    }
    budget_.work_limit = limit;
    return finish(bound_);
  }

 private:
  // From when a gap is first small, so much work is left. Without a limit of work, only the least
  // counts.
  void limit_small_gap(double limit) {
    for (const SmallGap& small : kSmallGaps) {
      if (limit == kInfinity && small.gap > kSmallGaps[0].gap) return;
      if (cutoff_ - bound_ >= small.gap * cutoff_ || small_ <= small.gap) continue;
      budget_.work_limit = std::min({limit, budget_.work_limit, budget_.work + small.work});
      small_ = small.gap;
      return;
    }
  }

  void tighten_root(Dual& dual) {
    Incumbent best;
    if (net_.capacity.empty()) {
      const BudgetShare share(budget_, 0.5);
      tighten(net_, dual, cutoff_, best, budget_, kRootPasses);
    } else {
      tighten_rows_and_mix(dual, best);
    }
    if (best.value < kInfinity) offer(best.value, lift(net_, best.labels));
    if (options_.minimiser != nullptr && !dual.exhausted()) {
      std::vector<int> labels = dual.decode();
      dual.improve(labels);
      *options_.minimiser = lift(net_, labels);
    }
    raise(dual.exhausted() ? cutoff_ : dual.bound());
  }

  // The messages settle before the multipliers move; and the last digits of the multipliers are for
  // those gaps that they can close, or where they cost nothing.
  void tighten_rows_and_mix(Dual& dual, Incumbent& best) {
    if (options_.prices != nullptr) set_prices(dual);
    Pool pool;
    const double before = budget_.work;
    for (const StepReach& reach : kReaches) {
      const double missing = (cutoff_ - dual.bound()) / cutoff_;
      const bool last = &reach != kReaches;
      if (dual.exhausted() || dual.bound() >= cutoff_) break;
      if (last && missing < kCloseEnough && budget_.work - before > kCheapWork) break;
      {
        const BudgetShare share(budget_, kRowsPart);
        if (!last) tighten(net_, dual, cutoff_, best, budget_, kSettlingPasses);
        tighten_rows(net_, dual, cutoff_, best, budget_, kRootSteps, reach, &pool);
      }
      mix(dual, pool, best);
    }
    if (options_.prices != nullptr) note_prices(dual);
  }

  void mix(const Dual& dual, const Pool& pool, Incumbent& best) {
    if (dual.exhausted() || dual.bound() >= cutoff_) return;
    Incumbent mixed = best_mix(net_, dual, pool, cutoff_, budget_);
    if (mixed.value < cutoff_) {
      cutoff_ = budget_.strictly_below(mixed.value);
      best = std::move(mixed);
    }
  }

  void set_prices(Dual& dual) const {
    Vector multipliers(net_.capacity.size(), 0.0);
    for (std::size_t r = 0; r < multipliers.size(); ++r) {
      const auto known = options_.prices->find(net_.row_time[r]);
      if (known != options_.prices->end()) multipliers[r] = known->second;
    }
    dual.set_multipliers(multipliers);
  }

  void note_prices(const Dual& dual) {
    options_.prices->clear();
    for (std::size_t r = 0; r < net_.capacity.size(); ++r) {
      if (dual.multipliers()[r] > 0) (*options_.prices)[net_.row_time[r]] = dual.multipliers()[r];
    }
  }

  // Looks for anything better among the labels that lie near the bound. Proves nothing.
  void guess(const Dual& dual, double part) {
    const BudgetShare share(budget_, kGuessWork);
    Dual narrowed = dual;
    narrowed.pass(bound_ + part * (cutoff_ - bound_));
    take(explore_survivors(net_, narrowed, cutoff_, budget_));
  }

  void take(const Found& found) {
    if (!(found.value < cutoff_)) return;
    cutoff_ = budget_.strictly_below(found.value);
    offer(found.value, lift(net_, found.labels));
  }

  // Looks below a cutoff that is so far above the bound. False if the work was not enough.
  bool attempt(const Dual& dual, double part) {
    const double below = part < 1 ? bound_ + part * (cutoff_ - bound_) : cutoff_;
    const BudgetShare share(budget_, kTrialWork);
    Dual narrowed = dual;
    if (part < 1) narrowed.pass(below);
    const Found found = explore_survivors(net_, narrowed, below, budget_);
    take(found);
    raise(std::min(below, found.bound));
    return bound_ >= std::min(below, cutoff_);
  }

  void offer(double value, std::vector<int> labels) {
    if (!(value < best_.value)) return;
    best_.value = value;
    best_.labels = std::move(labels);
    report_(bound_, best_.labels);
  }

  void raise(double bound) {
    bound_ = std::max(bound_, std::min(bound, cutoff_));
    report_(bound_, {});
  }

  Found finish(double bound) {
    best_.bound = bound;
    return best_;
  }

  Network& net_;
  double cutoff_;
  Budget& budget_;
  const Report& report_;
  const GapOptions& options_;
  double bound_ = 0;
  double small_ = kInfinity;  // the gap that the work is limited for
  Found best_;
};

}  // namespace

Found close_gap(Network& net, double cutoff, Budget& budget, const Report& report,
                const GapOptions& options) {
  return GapClosing(net, cutoff, budget, report, options).run();
}

}  // namespace autopar::solver
