#include "planning/pipelines/priced_unit.hpp"

#include <tuple>

#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

Result<RoomPrice> PricedUnit::price_of_room(std::int64_t in_flight, double units, double room) {
  while (true) {
    const int problem = problems_;
    auto price = price_of_room_now(in_flight, units, room);
    if (!price || problems_ == problem) return price;
  }
}

// The least of a unit is concave in the price, so the bound on the units is, too; two plans, one
// that fits and one that does not, say where more of it may be, and how much at most (Kelley's
// method, 1960, with one price).
Result<RoomPrice> PricedUnit::price_of_room_now(std::int64_t in_flight, double units, double room) {
  const auto of = [&](const UnitPoint& point, double price) {
    return RoomPrice{price, units * point.bound - price * room};
  };
  AUTOPAR_TRY(below, least(in_flight, 0));
  RoomPrice best = of(below, 0);
  if (units * below.bytes <= room) return best;
  double price = tuning::units::kFirstPrice * below.bound / below.bytes;
  const double first_price = price;
  std::optional<UnitPoint> above;
  double low = 0;
  const auto take = [&](const UnitPoint& found, double at_price) {
    const RoomPrice next = of(found, at_price);
    prices_.insert(at_price);
    if (next.bound > best.bound)
      std::tie(best.price, best.bound) = std::tie(next.price, next.bound);
  };
  for (int i = 0; i < tuning::units::kPrices && !above; ++i, price *= tuning::units::kDearer) {
    AUTOPAR_TRY(found, least(in_flight, price));
    take(found, price);
    if (units * found.bytes <= room) {
      above = found;
    } else {
      std::tie(below, low) = std::tuple(found, price);
    }
  }
  // Nothing fits, as far as units tell: the bound is what the highest price says. At such a price
  // the fewest bytes are all that counts, which needs no search.
  if (!above) {
    price = tuning::units::kDearest * first_price;
    UnitPoint point = below;
    point.bound = known_least(in_flight, price);
    take(point, price);
    return best;
  }
  for (int round = 0; round < tuning::units::kRounds && !is_stopped_(); ++round) {
    const double drop = below.bytes - above->bytes;
    const Seconds gain = above->cost - below.cost;
    const double next_price = drop > 0 ? gain / drop : 0;
    if (next_price <= low) break;
    const Seconds most = units * (below.cost + next_price * below.bytes) - next_price * room;
    if (most <= best.bound * (1 + tuning::units::kNoNews)) break;
    AUTOPAR_TRY(found, least(in_flight, next_price));
    const bool fits = units * found.bytes <= room;
    take(found, next_price);
    if (fits) {
      above = found;
    } else {
      std::tie(below, low) = std::tuple(found, next_price);
    }
  }
  return best;
}

}  // namespace autopar
