#include "search/solver/close_gap.hpp"

#include <algorithm>

#include "search/solver/multipliers.hpp"
#include "search/solver/reduce.hpp"

namespace autopar::solver {
namespace {

constexpr int kRootPasses = 100;
constexpr int kRootSteps = 1000;
constexpr double kTrials[] = {1.0 / 32, 1.0 / 8, 1.0 / 2, 1.0};  // of the gap
// A gap below this part of the value is worth only so much work.
constexpr double kSmallGap = 1e-5;
constexpr double kSmallGapWork = 1e8;

class GapClosing {
 public:
  GapClosing(Network& net, double cutoff, Budget& budget, const Report& report)
      : net_(net), cutoff_(cutoff), budget_(budget), report_(report) {}

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
    const double limit = budget_.work_limit;
    budget_.work_limit = budget_.work + 0.5 * (limit - budget_.work);
    Incumbent best;
    if (net_.capacity.empty()) {
      tighten(net_, dual, cutoff_, best, budget_, kRootPasses);
    } else {
      tighten_rows(net_, dual, cutoff_, best, budget_, kRootSteps);
    }
    budget_.work_limit = limit;
    if (best.value < kInfinity) offer(best.value, lift(net_, best.labels));
    raise(dual.exhausted() ? cutoff_ : dual.bound());
    for (double part : kTrials) {
      if (bound_ >= cutoff_ || budget_.over()) break;
      if (cutoff_ == kInfinity && part < 1) continue;
      const bool small = cutoff_ - bound_ < kSmallGap * cutoff_;
      if (small && !small_) budget_.work_limit = std::min(limit, budget_.work + kSmallGapWork);
      small_ = small;
      attempt(dual, part);
    }
    return finish(bound_);
  }

 private:
  void attempt(const Dual& dual, double part) {
    const double below = part < 1 ? bound_ + part * (cutoff_ - bound_) : cutoff_;
    const double limit = budget_.work_limit;
    if (part < 1) budget_.work_limit = budget_.work + 0.5 * (limit - budget_.work);
    Dual narrowed = dual;
    if (part < 1) narrowed.pass(below);
    const Found found = explore_survivors(net_, narrowed, below, budget_);
    budget_.work_limit = limit;
    if (found.value < cutoff_) {
      cutoff_ = budget_.strictly_below(found.value);
      offer(found.value, lift(net_, found.labels));
    }
    raise(std::min(below, found.bound));
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
  double bound_ = 0;
  bool small_ = false;
  Found best_;
};

}  // namespace

Found close_gap(Network& net, double cutoff, Budget& budget, const Report& report) {
  return GapClosing(net, cutoff, budget, report).run();
}

}  // namespace autopar::solver
