// What is known of a problem so far: the best plan, the bound, and what they have to beat.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "autopar/problem.hpp"
#include "solve/state/budget.hpp"

namespace autopar::solver {

// In SolveOptions::left_out.
inline unsigned bit_of(SolveStage stage) { return 1u << static_cast<unsigned>(stage); }

// Every stage of a search may lower the cutoff by a plan or raise the bound, and nothing else; each
// plan is evaluated anew.
class Race {
 public:
  Race(const Problem& problem, Budget& budget, double cutoff = kInfinity)
      : problem(problem), budget(budget), cutoff(cutoff) {}

  // Choices that cost less than the best and are within the limit are kept.
  bool offer(const std::vector<int>& choices);
  void raise(double more);
  // The gap that was asked for ends the search where it is reached.
  void check_gap();
  // Nothing is left to look for.
  bool closed() const { return bound >= below() || budget.enough; }
  // Values from here on are of no use.
  double below() const { return std::min(cutoff, strictly_below(cost)); }
  bool feasible() const { return !choices.empty(); }
  bool runs(SolveStage stage) const { return (left_out & bit_of(stage)) == 0; }

  const Problem& problem;
  Budget& budget;
  double cutoff;          // a plan is worth nothing unless cheaper than this
  double gap = 0;         // that was asked for
  unsigned left_out = 0;  // stages
  double bound = 0;
  double cost = kInfinity;
  std::vector<int> choices;  // of the best plan; empty: none is known
  // Of all that was offered, the least peak, whether it is within the limit or not.
  double least_peak = kInfinity;
  int least_peak_time = -1;
  std::vector<int> least_peak_choices;
  std::function<void(const Race&)> progress;
  std::vector<StageReport> reports;  // what each stage did

 private:
  void note();
};

// Notes what a stage did, when it ends; its seconds are CPU time of the calling thread. Stages
// within others are noted before these.
class Noted {
 public:
  Noted(Race& race, const char* name);
  ~Noted();
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  Race& race_;
  const char* name_;
  double work_;
  Seconds start_;
};

}  // namespace autopar::solver
