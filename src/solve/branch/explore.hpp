// The exact search below a cutoff: reductions, bound, fixing, merging of nodes, branching.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "solve/bound/dual.hpp"
#include "solve/network/network.hpp"

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
  // Values below a cutoff by less than this part of it are not looked for.
  double tolerance = 1e-12;

  void add(double entries) { work += entries; }
  bool over();
  static Clock::time_point after(double seconds);  // from now; never, where that is too far
  double strictly_below(double value) const;
};

// While it lives, the budget is a part of what is left of it; of the time that part (0: the same).
class BudgetShare {
 public:
  BudgetShare(Budget& budget, double part, double part_of_time = 0);
  ~BudgetShare();
  BudgetShare(const BudgetShare&) = delete;
  BudgetShare& operator=(const BudgetShare&) = delete;

 private:
  Budget& budget_;
  double work_limit_;
  Budget::Clock::time_point phase_end_;
};

struct Found {
  double value = kInfinity;  // infinite: nothing below the cutoff was found
  std::vector<int> labels =
      {};            // in the numbering of the network's origin, per node of the network
  double bound = 0;  // no labelling below the cutoff has a smaller value than this
  void keep_better(Found other);
};

// The least value below cutoff. Consumes the network.
Found explore(Network& net, double cutoff, Budget& budget);
// The same among those labels, and among what a dual that has been tightened leaves; the network
// stays.
Found explore_restricted(const Network& net, const std::vector<Labels>& kept, double cutoff,
                         Budget& budget);
Found explore_survivors(const Network& net, const Dual& dual, double cutoff, Budget& budget);

// Passes until the bound reaches the cutoff or stalls. Labellings found on the way are kept in
// `best` (labels of the nodes that are left) and lower the cutoff.
struct Incumbent {
  double value = kInfinity;
  std::vector<int> labels = {};
};
// Only if it is within the capacities; its value counts without the rows' prices.
void keep_if_better(const Network& net, std::vector<int> labels, const Budget& budget,
                    double& cutoff, Incumbent& best);
void tighten(const Network& net, Dual& dual, double& cutoff, Incumbent& best, Budget& budget,
             int most_passes);

}  // namespace autopar::solver
