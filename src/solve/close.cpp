#include "solve/close.hpp"

#include <algorithm>
#include <utility>

#include "solve/branch/explore.hpp"
#include "solve/effort.hpp"
#include "solve/windows/windows.hpp"

namespace autopar::solver {
namespace {

using namespace effort::close;

class Closing {
 public:
  Closing(const Network& net, const Dual& dual, double bound, double cutoff, Budget& budget)
      : net_(net), dual_(dual), bound_(bound), cutoff_(cutoff), budget_(budget) {}

  Found run(UseWindows windows) {
    if (dual_.exhausted() || bound_ >= cutoff_) {
      best_.bound = cutoff_;
      return best_;
    }
    const double limit = budget_.work_limit;
    if (windows != UseWindows::kNever && !net_.capacity.empty()) look_in_windows(windows);
    limit_small_gap(limit);
    const bool worthwhile = suffices(budget_.left(), kTrialNodeWork);
    for (double part : kGuesses) {
      limit_small_gap(limit);
      if (worthwhile && bound_ < cutoff_ && cutoff_ < kInfinity) guess(part);
    }
    double part = cutoff_ < kInfinity ? effort::close::kFirstPart : 1.0;
    while (worthwhile && bound_ < cutoff_ && !budget_.over() && part >= kLeastPart) {
      limit_small_gap(limit);
      const bool was_free = cutoff_ == kInfinity;
      const bool closed = attempt(part);
      part = was_free && cutoff_ < kInfinity ? effort::close::kFirstPart
             : closed                        ? std::min(1.0, 2 * part)
                                             : part * kLessFar;
    }
    budget_.work_limit = limit;
    best_.bound = bound_;
    return std::move(best_);
  }

 private:
  // Whether it would do for what is done to all nodes of the network before anything is found.
  bool suffices(double work, double per_node) const {
    const auto left =
        std::count_if(net_.nodes.begin(), net_.nodes.end(), [](const Node& n) { return !n.gone; });
    return budget_.patient || work >= per_node * static_cast<double>(left);
  }

  // From when a gap is first small, so much work is left.
  void limit_small_gap(double limit) {
    if (budget_.patient) return;
    for (const SmallGap& small : effort::close::kSmallGaps) {
      if (cutoff_ - bound_ >= small.gap * cutoff_ || small_ <= small.gap) continue;
      budget_.work_limit =
          std::min({limit, budget_.work_limit, budget_.work + budget_.effort * small.work});
      small_ = small.gap;
      return;
    }
  }

  // Exact where the network is narrow.
  void look_in_windows(UseWindows windows) {
    if (cutoff_ == kInfinity) return;
    const bool wide = cutoff_ - bound_ > kWindowsGap * cutoff_;
    if (wide && windows != UseWindows::kAlways) return;
    const double part = wide ? kWideWindowsWork : kWindowsWork;
    if (!suffices(part * budget_.left(), kWindowNodeWork)) return;
    const BudgetShare share(budget_, part);
    take(search_windows(net_, dual_, cutoff_, budget_));
  }

  // Looks for anything better among the labels that lie near the bound. Proves nothing.
  void guess(double part) {
    const BudgetShare share(budget_, kGuessWork);
    Dual narrowed = dual_;
    narrowed.pass(bound_ + part * (cutoff_ - bound_));
    Found found = explore_survivors(net_, narrowed, cutoff_, budget_);
    found.bound = bound_;
    take(std::move(found));
  }

  // Looks below a cutoff that is so far above the bound. False if the work was not enough.
  bool attempt(double part) {
    const double below = part < 1 ? bound_ + part * (cutoff_ - bound_) : cutoff_;
    const BudgetShare share(budget_, kTrialWork);
    Dual narrowed = dual_;
    if (part < 1) narrowed.pass(below);
    Found found = explore_survivors(net_, narrowed, below, budget_);
    found.bound = std::min(below, found.bound);
    take(std::move(found));
    return bound_ >= std::min(below, cutoff_);
  }

  void take(Found found) {
    if (found.value < cutoff_) {
      cutoff_ = strictly_below(found.value);
      best_.value = found.value;
      best_.labels = std::move(found.labels);
    }
    bound_ = std::max(bound_, std::min(found.bound, cutoff_));
  }

  const Network& net_;
  const Dual& dual_;
  double bound_, cutoff_;
  Budget& budget_;
  double small_ = kInfinity;  // the gap that the work is limited for
  Found best_;                // labels of the network's nodes
};

}  // namespace

Found close_gap(const Network& net, const Dual& dual, double bound, double cutoff, Budget& budget,
                UseWindows windows) {
  Found found = Closing(net, dual, bound, cutoff, budget).run(windows);
  if (found.value < kInfinity) found.labels = lift(net, std::move(found.labels));
  return found;
}

}  // namespace autopar::solver
