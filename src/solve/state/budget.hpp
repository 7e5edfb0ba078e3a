// What a search may still spend.
#pragma once

#include <atomic>
#include <chrono>

#include "autopar/problem.hpp"

namespace autopar::solver {

// Work in table entries, so that a run that ends by it ends everywhere at the same place.
struct Budget {
  double work = 0;
  double work_limit = kInfinity;
  const std::atomic<bool>* stop = nullptr;
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline = Clock::time_point::max();
  Clock::time_point phase_end = Clock::time_point::max();  // ends this phase only
  bool interrupted = false;                                // by the clock or the caller
  bool patient = false;  // the time is there to be used: small gaps are worth it too
  bool counted = false;  // shares are of the work alone: the clock only ends it all
  bool enough = false;   // the gap that was asked for is reached
  double effort = 1;     // of a default search; with more, smaller gaps are worth the work
  double held = 0;       // table entries of networks that wait for those made of them

  void add(double entries) { work += entries; }
  double left() const { return work_limit - work; }
  bool over();
  static Clock::time_point after(double seconds);  // from now; never, where that is too far
};

// The cutoff below a value: what is less only by rounding is not looked for.
double strictly_below(double value);

// While it lives, so many entries are held.
class HeldEntries {
 public:
  HeldEntries(Budget& budget, double entries) : budget_(budget), entries_(entries) {
    budget.held += entries;
  }
  ~HeldEntries() { budget_.held -= entries_; }
  HeldEntries(const HeldEntries&) = delete;
  HeldEntries& operator=(const HeldEntries&) = delete;

 private:
  Budget& budget_;
  const double entries_;
};

// While it lives, the budget is a part of what is left of it; of the time that part (0: the same).
class BudgetShare {
 public:
  BudgetShare(Budget& budget, double part, double part_of_time = 0);
  // So much work, if there is that much left.
  struct Most {
    double work;
  };
  BudgetShare(Budget& budget, Most most);
  ~BudgetShare();
  BudgetShare(const BudgetShare&) = delete;
  BudgetShare& operator=(const BudgetShare&) = delete;

 private:
  Budget& budget_;
  double work_limit_;
  Budget::Clock::time_point phase_end_;
};

}  // namespace autopar::solver
