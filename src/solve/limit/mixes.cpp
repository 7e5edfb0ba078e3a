#include "solve/limit/mixes.hpp"

#include "solve/bound/settle.hpp"
#include "solve/bound/subgradient.hpp"
#include "solve/close.hpp"
#include "solve/effort.hpp"
#include "solve/network/reduce.hpp"

namespace autopar::solver {
namespace {

using namespace effort::mixes;

// The network in which each node has only the labels that it has in one of the labellings, and only
// these rows.
std::unique_ptr<Network> pooled(const Network& net, const std::vector<int>& rows,
                                const std::vector<Met>& met) {
  std::vector<std::vector<int>> labellings;
  for (const Met& its : met) labellings.push_back(its.labels);
  std::unique_ptr<Network> child = restricted(net, met_labels(each_alone(net), labellings));
  keep_rows(*child, rows);
  return child;
}

}  // namespace

void mix_labellings(AllTimes& all, const std::vector<int>& rows, const Priced& priced, Race& race) {
  const std::unique_ptr<Network> net = pooled(all.net(), rows, priced.met);
  race.budget.add(2 * net->algebra.work());
  reduce(*net);
  race.budget.add(net->algebra.work());
  double cutoff = race.below();
  if (net->impossible || net->constant >= cutoff) return;
  Dual dual(*net);
  dual.set_multipliers(multipliers_of(*net, by_time(all.net(), priced.prices)));
  settle(dual, effort::mixes::kSettling, cutoff, true, race.budget);
  Incumbent best;
  {
    const BudgetShare share(race.budget, effort::mixes::kRowsPart);
    tighten_rows(*net, dual, cutoff, best, race.budget, effort::mixes::kSteps, kReach);
  }
  std::vector<int> found;
  if (best.value < kInfinity) found = lift(*net, std::move(best.labels));
  if (!dual.exhausted() && dual.bound() < cutoff) {
    const BudgetShare share(race.budget, BudgetShare::Most{kClosingWork});
    Found closed = close_gap(*net, dual, dual.bound(), cutoff, race.budget, UseWindows::kAlways);
    if (closed.value < kInfinity) found = std::move(closed.labels);
  }
  if (!found.empty()) all.keep(in_parent(all.net(), *net, found));
}

}  // namespace autopar::solver
