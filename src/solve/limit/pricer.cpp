#include "solve/limit/pricer.hpp"

#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {

using namespace effort::pricer;

void Pricer::allow(const std::vector<int>& rows) {
  std::vector<int> all = rows_;
  all.insert(all.end(), rows.begin(), rows.end());
  sort_unique(all);
  if (parts_ != nullptr && (all == rows_ || alone_)) {
    rows_ = std::move(all);
    return;
  }
  rows_ = std::move(all);
  std::unique_ptr<LikeParts> finer;
  if (race_.runs(SolveStage::kFold)) finer = LikeParts::of(all_, effort::fold::kFoldRounds, rows_);
  alone_ = finer == nullptr;
  if (alone_) finer = LikeParts::each_alone(all_);
  if (parts_ != nullptr) finer->take_over(*parts_);
  parts_ = std::move(finer);
  race_.budget.add(kFoldingWork * static_cast<double>(all_.nodes.size() + all_.edges.size()));
}

double Pricer::settle(const RowPrices& prices, bool exactly) {
  Vector multipliers(all_.capacity.size(), 0.0);
  for (const auto& [row, price] : prices) multipliers[at(row)] = price;
  parts_->set_multipliers(multipliers);
  double cutoff = race_.below();
  const Patience& patience = alone_ ? kAlonePatience : kPatience;
  parts_->settle_quickly(exactly && !alone_ ? kLongPatience : patience, cutoff, nullptr,
                         race_.budget);
  if (!exactly) return parts_->quick_bound();
  const double bound = parts_->settle_exactly(cutoff, race_.budget);
  race_.raise(bound);
  return bound;
}

std::vector<int> Pricer::favoured() {
  race_.budget.add(2 * parts_->work_per_pass());
  return parts_->favoured();
}

}  // namespace autopar::solver
