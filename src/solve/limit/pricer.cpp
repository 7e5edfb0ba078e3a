#include "solve/limit/pricer.hpp"

#include <utility>

#include "solve/effort.hpp"
#include "solve/network/reduce.hpp"

namespace autopar::solver {

using namespace effort::pricer;

TimePrices by_time(const Network& net, const RowPrices& prices) {
  TimePrices result;
  for (const auto& [row, price] : prices) result[net.row_time[at(row)]] = price;
  return result;
}

Vector multipliers_of(const Network& net, const TimePrices& prices) {
  Vector multipliers;
  for (int time : net.row_time) {
    const auto known = prices.find(time);
    multipliers.push_back(known == prices.end() ? 0.0 : known->second);
  }
  return multipliers;
}

void Pricer::allow(const std::vector<int>& rows) {
  std::vector<int> all = rows_;
  all.insert(all.end(), rows.begin(), rows.end());
  sort_unique(all);
  if (parts_ != nullptr && all == rows_) return;
  rows_ = std::move(all);
  const Network& net = all_.net();
  std::unique_ptr<LikeParts> finer;
  if (race_.runs(SolveStage::kFold) && reduced_ == nullptr) {
    finer = LikeParts::of(net, effort::fold::kFoldRounds, rows_);
    race_.budget.add(kFoldingWork * static_cast<double>(net.nodes.size() + net.edges.size()));
  }
  if (finer == nullptr) {
    take_each_alone();
  } else {
    if (parts_ != nullptr) finer->take_over(*parts_);
    parts_ = std::move(finer);
  }
  keep_messages();
}

// On a network that is reduced for them.
void Pricer::take_each_alone() {
  if (reduced_ != nullptr) messages_ = messages();
  parts_ = nullptr;
  std::vector<int> times;
  for (int row : rows_) times.push_back(all_.net().row_time[at(row)]);
  reduced_ = build_network(race_.problem, times);
  race_.budget.add(effort::work::kReducingPart * reduce(*reduced_));
  if (reduced_->impossible) {
    race_.raise(race_.below());
    reduced_ = nullptr;
    parts_ = LikeParts::each_alone(all_.net());
    return;
  }
  forget_unused(*reduced_);
  parts_ = LikeParts::each_alone(*reduced_);
  if (messages_ != nullptr) parts_->begin_from(*messages_);
}

std::shared_ptr<const CarriedMessages> Pricer::messages() const {
  if (reduced_ == nullptr) return nullptr;
  return std::make_shared<const CarriedMessages>(parts_->carried());
}

double Pricer::settle(const RowPrices& prices, bool exactly) {
  const Network& net = reduced_ == nullptr ? all_.net() : *reduced_;
  parts_->set_multipliers(multipliers_of(net, by_time(all_.net(), prices)));
  double cutoff = race_.below();
  const bool alone = reduced_ != nullptr;
  const Patience& patience = alone     ? kAlonePatience
                             : exactly ? kLongPatience
                                       : effort::pricer::kPatience;
  parts_->settle_quickly(patience, cutoff, nullptr, race_.budget);
  if (!exactly) return parts_->quick_bound();
  const double bound = parts_->settle_exactly(cutoff, race_.budget);
  race_.raise(bound);
  return bound;
}

std::vector<int> Pricer::favoured() {
  race_.budget.add(2 * parts_->work_per_pass());
  std::vector<int> labels = parts_->favoured();
  return reduced_ == nullptr ? labels : all_.labels_of(lift(*reduced_, std::move(labels)));
}

}  // namespace autopar::solver
