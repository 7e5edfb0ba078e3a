// A network as it comes, its like parts seen as one: where there are many, a bound, labellings and
// often the proof, without any reduction.
#pragma once

#include <memory>
#include <vector>

#include "solve/bound/folded_dual.hpp"
#include "solve/branch/explore.hpp"

namespace autopar::solver {

// When to stop: after so many quick passes, or where eight of them gain less than both parts.
struct Patience {
  int most_passes = 64;
  double of_missing = 0.1;  // of what is missing to the cutoff
  double of_bound = 1;
};

// Refers to the network, which must outlive it unchanged. Without capacities.
class LikeParts {
 public:
  // Null where the network has too few, or where like nodes are joined to each other. Parts are
  // told apart by what is so many edges away.
  static std::unique_ptr<LikeParts> of(const Network& net, int rounds);

  // Goes on from what is known of parts that are told apart less.
  void take_over(const LikeParts& coarser);

  // Quick passes, then exact ones, in which labels die. Labellings on the way are kept in `best`
  // and lower the cutoff.
  void settle(const Patience& patience, double& cutoff, Incumbent& best, Budget& budget);
  // After settling. The cutoff, where nothing is below it.
  double bound() const { return bound_; }

  // What is below a cutoff, if it leaves few labels.
  Found explore(double below, Budget& budget) const;

  // The labels that are left, per node of the network.
  std::vector<Labels> alive() const { return alive(exact_); }
  double part_alive() const { return exact_.labels_alive() / exact_.labels_total(); }

 private:
  LikeParts(const Network& net, Fold fold);
  std::vector<Labels> alive(const FoldedDual<double>& dual) const;

  const Network& net_;
  const Fold fold_;
  FoldedDual<float> quick_;
  FoldedDual<double> exact_;
  double bound_ = 0;
};

}  // namespace autopar::solver
