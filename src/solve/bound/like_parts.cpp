#include "solve/bound/like_parts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "solve/bound/settle.hpp"
#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::like_parts;

bool joins_like_nodes(const Network& net, const Fold& parts) {
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    if (!net.edges[e].gone && parts.edge_of[e] < 0) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<LikeParts> LikeParts::of(const Network& net, int rounds,
                                         const std::vector<int>& rows) {
  Fold parts = fold(net, rounds, &rows);
  if (parts.first.empty() || joins_like_nodes(net, parts)) return nullptr;
  return std::unique_ptr<LikeParts>(new LikeParts(net, std::move(parts)));
}

std::unique_ptr<LikeParts> LikeParts::each_alone(const Network& net) {
  return std::unique_ptr<LikeParts>(new LikeParts(net, solver::each_alone(net)));
}

LikeParts::LikeParts(const Network& net, Fold fold)
    : net_(net), fold_(std::move(fold)), quick_(net, fold_), exact_(net, fold_) {}

void LikeParts::take_over(const LikeParts& other) {
  std::vector<int> edge_of(fold_.edges_in.size(), -1);
  for (std::size_t e = 0; e < fold_.edge_of.size(); ++e) {
    if (fold_.edge_of[e] >= 0) edge_of[at(fold_.edge_of[e])] = other.fold_.edge_of[e];
  }
  quick_.take_over(other.quick_, edge_of);
}

void LikeParts::set_multipliers(const Vector& multipliers) {
  quick_.set_multipliers(multipliers);
  exact_.set_multipliers(multipliers);
}

void LikeParts::return_to_kept() {
  if (kept_.messages.empty()) return;
  quick_.begin_from(kept_.messages);
  quick_.set_multipliers(kept_.multipliers);
}

void LikeParts::settle_quickly(const Patience& patience, double& cutoff, Incumbent* best,
                               Budget& budget) {
  const auto look = [&] { keep_if_better(net_, favoured(), cutoff, *best); };
  settle(quick_, patience, cutoff, false, budget, best == nullptr ? nullptr : std::function(look));
}

double LikeParts::settle_exactly(double cutoff, Budget& budget) {
  std::vector<int> same(fold_.edges_in.size());
  std::iota(same.begin(), same.end(), 0);
  exact_.take_over(quick_, same);
  double bound = -kInfinity;
  for (int pass = 0; pass < kMostExactPasses && bound < cutoff; ++pass) {
    const double missing = cutoff - bound;
    exact_.pass(cutoff);
    budget.add(exact_.work_per_pass());
    bound = std::max(bound, exact_.exhausted() ? cutoff : exact_.bound());
    if (pass > 0 && !(cutoff - bound <= (1 - kExactGain) * missing)) break;
  }
  return bound;
}

std::optional<std::vector<Labels>> LikeParts::alive_below(double below, Budget& budget) const {
  Dual narrowed = exact_;
  narrowed.pass(below);
  budget.add(narrowed.work_per_pass());
  if (narrowed.labels_alive() > kFewAlive * narrowed.labels_total()) return std::nullopt;
  return alive(narrowed);
}

std::vector<Labels> LikeParts::alive(const Dual& dual) const {
  std::vector<Labels> kept(net_.nodes.size());
  for (std::size_t n = 0; n < kept.size(); ++n) {
    if (fold_.class_of[n] >= 0) kept[n] = dual.left(fold_.class_of[n]);
  }
  return kept;
}

}  // namespace autopar::solver
