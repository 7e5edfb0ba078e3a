#include "planning/pipelines/unit_bound.hpp"

namespace autopar {

UnitPoint UnitBound::of_keeping(std::int64_t in_flight, double price) const {
  const double of_all = price * static_cast<double>(in_flight);
  const auto [found, is_new] = known_.try_emplace(of_all);
  UnitPoint& point = found->second;
  if (!is_new) return point;
  KeepPrices prices{keeping_->bytes, keeping_->repeat};
  for (double& keep : prices.keep) keep *= of_all;
  const LeastKept least = least_kept(keeping_->unit, keeping_->most, prices);
  point.bound = least.sum;
  for (std::size_t v = 0; v < least.keeps.size(); ++v) {
    if (least.keeps[v] != 0) point.bytes += keeping_->bytes[v];
  }
  point.cost = least.sum - of_all * point.bytes;
  return point;
}

Result<UnitPoint> UnitBound::least(std::int64_t in_flight, double price) {
  if (!keeping_) return memory_->least(in_flight, price);
  AUTOPAR_TRY(point, memory_->least(0, price));
  const UnitPoint kept = of_keeping(in_flight, price);
  point.bound += kept.bound;
  point.cost += kept.cost;
  point.bytes += static_cast<double>(in_flight) * kept.bytes;
  return point;
}

Seconds UnitBound::known_least(std::int64_t in_flight, double price) const {
  if (!keeping_) return memory_->known_least(in_flight, price);
  return memory_->known_least(0, price) + of_keeping(in_flight, price).bound;
}

}  // namespace autopar
