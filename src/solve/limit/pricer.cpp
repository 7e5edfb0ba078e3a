#include "solve/limit/pricer.hpp"

#include <algorithm>
#include <cmath>

#include "solve/bound/settle.hpp"
#include "solve/effort.hpp"
#include "solve/network/reduce.hpp"

namespace autopar::solver {
namespace {

using namespace effort::pricer;
using namespace effort::work;

}  // namespace

void Pricer::allow(const std::vector<int>& rows) {
  std::vector<int> all = rows_;
  all.insert(all.end(), rows.begin(), rows.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all == rows_ && (like_ != nullptr || dual_)) return;
  rows_ = std::move(all);
  if (folds_) {
    std::unique_ptr<LikeParts> finer = LikeParts::of(all_, effort::fold::kFoldRounds, rows_);
    if (finer != nullptr && like_ != nullptr) finer->take_over(*like_);
    like_ = std::move(finer);
    race_.budget.add(20.0 * static_cast<double>(all_.nodes.size() + all_.edges.size()));
    if (like_ != nullptr) return;
  }
  reduce_for_rows();
}

void Pricer::reduce_for_rows() {
  std::vector<int> times;
  for (int row : rows_) times.push_back(all_.row_time[at(row)]);
  dual_.reset();
  reduced_ = build_network(race_.problem, times);
  const double before = reduced_->algebra.work();
  reduce(*reduced_);
  race_.budget.add(kReducingPart * (reduced_->algebra.work() - before));
  forget_unused(*reduced_);
  exhausted_ = reduced_->impossible;
  dual_.emplace(*reduced_);
}

double Pricer::settle(const RowPrices& prices, bool exactly) {
  if (exhausted_) return race_.below();
  const Network& net = like_ != nullptr ? all_ : *reduced_;
  Vector multipliers(net.capacity.size(), 0.0);
  for (std::size_t r = 0; r < multipliers.size(); ++r) {
    const int time = net.row_time[r];
    const auto row = std::lower_bound(all_.row_time.begin(), all_.row_time.end(), time);
    const auto price = prices.find(static_cast<int>(row - all_.row_time.begin()));
    if (price != prices.end()) multipliers[r] = price->second;
  }
  if (like_ == nullptr) {
    dual_->set_multipliers(multipliers);
    const double cutoff = race_.below();
    solver::settle(*dual_, exactly ? kLongPatience : kPatience, cutoff, true, race_.budget);
    exhausted_ = dual_->exhausted();
    const double bound = exhausted_ ? cutoff : dual_->bound();
    race_.raise(bound);
    return bound;
  }
  like_->set_multipliers(multipliers);
  double cutoff = race_.below();
  like_->settle_quickly(exactly ? kLongPatience : kPatience, cutoff, nullptr, race_.budget);
  if (!exactly) return like_->quick_bound();
  const double bound = like_->settle_exactly(cutoff, race_.budget);
  race_.raise(bound);
  return bound;
}

std::vector<int> Pricer::favoured() {
  if (like_ != nullptr) {
    race_.budget.add(2 * like_->work_per_pass());
    return like_->favoured();
  }
  race_.budget.add(2 * dual_->work_per_pass());
  const std::vector<int> choices = lift(*reduced_, dual_->decode_and_improve());
  std::vector<int> labels(choices.size());
  for (std::size_t n = 0; n < choices.size(); ++n) {
    const Labels& known = all_.origin_labels[n];
    labels[n] =
        static_cast<int>(std::lower_bound(known.begin(), known.end(), choices[n]) - known.begin());
  }
  return labels;
}

}  // namespace autopar::solver
