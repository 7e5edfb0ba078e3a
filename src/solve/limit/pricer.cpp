#include "solve/limit/pricer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

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
  best_.reset();
  reduced_ = build_network(race_.problem, times);
  const double before = reduced_->algebra.work();
  reduce(*reduced_);
  race_.budget.add(kReducingPart * (reduced_->algebra.work() - before));
  forget_unused(*reduced_);
  exhausted_ = reduced_->impossible;
  dual_.emplace(*reduced_);
  fresh_ = true;
}

double Pricer::settle(const RowPrices& prices, bool exactly) {
  if (exhausted_) return race_.below();
  const Network& net = like_ != nullptr ? all_ : *reduced_;
  Vector multipliers(net.capacity.size(), 0.0);
  for (std::size_t r = 0; r < multipliers.size(); ++r) {
    const auto price = prices.find(row_of(net.row_time[r]));
    if (price != prices.end()) multipliers[r] = price->second;
  }
  if (like_ == nullptr) {
    if (best_) dual_ = best_;
    dual_->set_multipliers(multipliers);
    const double cutoff = race_.below();
    const Patience& patience = std::exchange(fresh_, false) ? effort::settle::kThorough
                               : exactly                    ? effort::settle::kThorough
                                                            : kSinglePatience;
    solver::settle(*dual_, patience, cutoff, true, race_.budget);
    exhausted_ = dual_->exhausted();
    if (!best_ || dual_->bound() > best_->bound()) best_ = dual_;
    double bound = exhausted_ ? cutoff : dual_->bound();
    if (best_->multipliers() == multipliers) bound = std::max(bound, best_->bound());
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

int Pricer::row_of(int time) const {
  const auto row = std::lower_bound(all_.row_time.begin(), all_.row_time.end(), time);
  return static_cast<int>(row - all_.row_time.begin());
}

std::vector<int> Pricer::labels_of_all(const std::vector<int>& labels) const {
  std::vector<int> result = lift(*reduced_, labels);
  for (std::size_t n = 0; n < result.size(); ++n) {
    const Labels& known = all_.origin_labels[n];
    result[n] =
        static_cast<int>(std::lower_bound(known.begin(), known.end(), result[n]) - known.begin());
  }
  return result;
}

std::vector<int> Pricer::favoured() {
  if (like_ != nullptr) {
    race_.budget.add(2 * like_->work_per_pass());
    return like_->favoured();
  }
  race_.budget.add(2 * dual_->work_per_pass());
  return labels_of_all(dual_->decode_and_improve());
}

}  // namespace autopar::solver
