#include "solve/plans/mix.hpp"

#include <algorithm>
#include <utility>

#include "solve/effort.hpp"
#include "solve/network/arrangement.hpp"
#include "solve/network/reduce.hpp"
#include "solve/plans/repair.hpp"
#include "solve/plans/sweep.hpp"

namespace autopar::solver {
namespace {

using namespace effort::mix;

class Mixing {
 public:
  Mixing(const Network& net, Network& child, double cutoff, Budget& budget)
      : net_(net), child_(child), cutoff_(cutoff), budget_(budget) {}

  // A sweep knows one weighted sum of the rows: rows that its labellings exceed get more weight in
  // the next.
  Incumbent run() {
    const std::vector<int> order = narrow_order(child_);
    Vector weights = child_.multiplier;
    for (int k = 1; k <= kSweeps && !budget_.over(); ++k) {
      double total = 0;
      for (double weight : weights) total += weight;
      double work = 0;
      const auto found = sweep(child_, order, weights, cutoff_, kChecks, work);
      budget_.add(work);
      if (found.empty()) break;
      const int overfull = check(found);
      if (overfull < 0) break;
      const double part = 1.0 / (k + 1);
      for (double& weight : weights) weight *= 1 - part;
      weights[at(overfull)] += part * total;
    }
    return std::move(best_);
  }

 private:
  // Keeps the first labelling that fits. The row that the first one exceeds most; -1 if it fits.
  int check(const std::vector<std::vector<int>>& found) {
    int overfull = -1;
    for (std::size_t i = 0; i < found.size(); ++i) {
      std::vector<int> labels = in_parent(net_, child_, lift(child_, found[i]));
      budget_.add(static_cast<double>(net_.nodes.size() + net_.edges.size()));
      const int row = fullest_row(found[i]);
      if (i == 0) overfull = row;
      if (row < 0) {
        keep_if_better(net_, std::move(labels), budget_, cutoff_, best_);
        break;
      }
      double work = 0;
      const bool fits = repair(net_, labels, kRepairWork, work);
      budget_.add(work);
      if (fits) keep_if_better(net_, std::move(labels), budget_, cutoff_, best_);
    }
    return overfull;
  }

  int fullest_row(const std::vector<int>& labels) const {
    const Vector uses = uses_of(child_, labels);
    int fullest = -1;
    double most = 0;
    for (std::size_t r = 0; r < uses.size(); ++r) {
      if (!(uses[r] - child_.capacity[r] > most)) continue;
      most = uses[r] - child_.capacity[r];
      fullest = static_cast<int>(r);
    }
    return fullest;
  }

  const Network& net_;
  Network& child_;
  double cutoff_;
  Budget& budget_;
  Incumbent best_;
};

}  // namespace

Incumbent best_mix(const Network& net, const Dual& dual, double cutoff, Budget& budget) {
  const std::unique_ptr<Network> child = dual.survivors(false);
  if (child->impossible) return {};
  reduce(*child);
  budget.add(child->algebra.work());
  if (child->impossible || child->constant >= cutoff) return {};
  return Mixing(net, *child, cutoff, budget).run();
}

}  // namespace autopar::solver
