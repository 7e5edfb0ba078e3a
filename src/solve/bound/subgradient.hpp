// The bound under the memory limit: rows priced by multipliers, which are moved step by step.
#pragma once

#include "solve/bound/dual.hpp"
#include "solve/effort.hpp"
#include "solve/state/found.hpp"

namespace autopar::solver {

// Steps on the multipliers of a dual, each with one pass of messages. A step goes along what the
// favoured labelling uses above the capacities, as far as would lead to the value that is aimed at.
// Source: Polyak, "Minimization of unsmooth functionals", 1969; Camerini, Fratta, Maffioli, "On
// improving relaxation methods by modified gradient techniques", 1975.
class Subgradient {
 public:
  // `few_rows`: of each stretch of rows that overflow only the worst gets a multiplier, so that few
  // rows share the price of one bottleneck. Moves the dual; it must outlive this.
  Subgradient(const Network& net, Dual& dual, Budget& budget, StepReach reach, bool few_rows);

  // Passes, and finds what is favoured. False where nothing is below the cutoff any more, or where
  // the aim is close enough.
  bool pass(double cutoff);
  const std::vector<int>& favoured() const { return labels_; }
  // Moves the multipliers for the next pass. False: what is favoured is within the capacities, and
  // nothing is left to change.
  bool step(double cutoff);
  double reach() const { return reach_; }
  // The dual as it was where its bound was best; and that bound, at most the cutoff.
  double finish(double cutoff);

 private:
  void activate();
  Vector direction(const Vector& before) const;
  void note_gain(double cutoff);

  const Network& net_;
  Dual& dual_;
  Dual top_;
  Budget& budget_;
  StepReach reach_of_;
  bool few_rows_;
  double reach_;
  bool first_ = true;
  int without_gain_ = 0;
  std::vector<char> active_;
  std::vector<int> labels_;
  Vector uses_, before_;
};

// Such steps until they gain little; ends at the best multipliers seen. Labellings met on the way
// are repaired and kept as in tighten(); the latest are noted in `met`, where that is asked for.
void tighten_rows(const Network& net, Dual& dual, double& cutoff, Incumbent& best, Budget& budget,
                  int most_steps, StepReach reach = {},
                  std::vector<std::vector<int>>* met = nullptr);

}  // namespace autopar::solver
