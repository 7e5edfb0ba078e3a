#include "solve/bound/like_parts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace autopar::solver {
namespace {

constexpr int kPassesAtOnce = 8;   // between two labellings that are made of the messages
constexpr double kQuickly = 1e-6;  // of the bound; quick passes are no more exact
constexpr int kMostExactPasses = 16;
constexpr double kExactGain = 0.1;  // of what is missing; a pass that gains less is the last
constexpr double kFewAlive = 0.3;   // of the labels

bool joins_like_nodes(const Network& net, const Fold& parts) {
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    if (!net.edges[e].gone && parts.edge_of[e] < 0) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<LikeParts> LikeParts::of(const Network& net, int rounds) {
  Fold parts = fold(net, rounds);
  if (parts.first.empty() || joins_like_nodes(net, parts)) return nullptr;
  return std::unique_ptr<LikeParts>(new LikeParts(net, std::move(parts)));
}

LikeParts::LikeParts(const Network& net, Fold fold)
    : net_(net), fold_(std::move(fold)), quick_(net, fold_), exact_(net, fold_) {}

void LikeParts::take_over(const LikeParts& coarser) {
  std::vector<int> edge_of(fold_.edges_in.size(), -1);
  for (std::size_t e = 0; e < fold_.edge_of.size(); ++e) {
    if (fold_.edge_of[e] >= 0) edge_of[at(fold_.edge_of[e])] = coarser.fold_.edge_of[e];
  }
  quick_.take_over(coarser.quick_, edge_of);
}

void LikeParts::settle(const Patience& patience, double& cutoff, Incumbent& best, Budget& budget) {
  double before = 0;
  for (int pass = 1; pass <= patience.most_passes && !budget.over(); ++pass) {
    quick_.pass(kInfinity);
    budget.add(quick_.work_per_pass());
    if (pass % kPassesAtOnce != 0) continue;
    keep_if_better(net_, unfold(fold_, quick_.decode()), budget, cutoff, best);
    budget.add(quick_.work_per_pass());
    const double missing = cutoff < kInfinity ? cutoff - quick_.bound() : quick_.bound();
    const double little =
        std::min(patience.of_missing * missing, patience.of_bound * quick_.bound());
    if (quick_.bound() - before < little || missing < kQuickly * quick_.bound()) break;
    before = quick_.bound();
  }
  std::vector<int> same(fold_.edges_in.size());
  std::iota(same.begin(), same.end(), 0);
  exact_.take_over(quick_, same);
  for (int pass = 0; pass < kMostExactPasses && bound_ < cutoff; ++pass) {
    const double missing = cutoff - bound_;
    exact_.pass(cutoff);
    budget.add(exact_.work_per_pass());
    bound_ = std::max(bound_, exact_.exhausted() ? cutoff : exact_.bound());
    if (pass > 0 && cutoff - bound_ > (1 - kExactGain) * missing) break;
  }
}

Found LikeParts::explore(double below, Budget& budget) const {
  FoldedDual<double> narrowed = exact_;
  narrowed.pass(below);
  budget.add(narrowed.work_per_pass());
  if (narrowed.exhausted()) return {.bound = below};
  if (narrowed.labels_alive() > kFewAlive * narrowed.labels_total()) return {.bound = bound_};
  return explore_restricted(net_, alive(narrowed), below, budget);
}

std::vector<Labels> LikeParts::alive(const FoldedDual<double>& dual) const {
  std::vector<Labels> kept(net_.nodes.size());
  for (std::size_t n = 0; n < kept.size(); ++n) {
    const int c = fold_.class_of[n];
    for (int l = 0; c >= 0 && l < net_.label_count(static_cast<int>(n)); ++l) {
      if (dual.alive(c, l)) kept[n].push_back(l);
    }
  }
  return kept;
}

}  // namespace autopar::solver
