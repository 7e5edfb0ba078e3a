#include "solve/bound/settle.hpp"

#include <algorithm>
#include <utility>

namespace autopar::solver {
namespace {

// Per edge that is left, as a dual of single nodes counts them: its number in the fold.
std::vector<int> edges_left(const Network& net, const Fold& like) {
  std::vector<int> result;
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    if (!net.edges[e].gone) result.push_back(like.edge_of[e]);
  }
  return result;
}

}  // namespace

double settle_folded(const Network& net, Dual& dual, const double& cutoff, Budget& budget,
                     const std::function<void(std::vector<int>)>& look) {
  std::vector<int> rows;
  for (std::size_t r = 0; r < net.capacity.size(); ++r) rows.push_back(static_cast<int>(r));
  const Fold like = fold(net, effort::fold::kFoldRounds, &rows);
  if (like.first.empty()) return -kInfinity;
  Dual folded(net, like);
  folded.set_multipliers(dual.multipliers());
  const auto favoured = [&] { look(unfold(like, folded.decode_and_improve())); };
  settle(folded, effort::settle::kFolded, cutoff, false, budget,
         look == nullptr ? nullptr : std::function(favoured));
  dual.take_over(folded, edges_left(net, like));
  return std::min(cutoff, folded.bound());
}

}  // namespace autopar::solver
