#include "solve/bound/settle.hpp"

#include <algorithm>
#include <utility>

namespace autopar::solver {

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
  dual.take_over(folded, like.edge_of);
  return std::min(cutoff, folded.bound());
}

}  // namespace autopar::solver
