// A unit of a step where memory has a price: what is the most that such prices say of many of them.
#pragma once

#include <functional>
#include <optional>
#include <set>

#include "autopar/support.hpp"

namespace autopar {

struct UnitPoint {
  Seconds bound = 0;    // of time + price x bytes
  Seconds cost = 0;     // of the plan that was found, without the price
  double bytes = 0;     // of that plan
  std::size_t way = 0;  // its own
};

// What is the most that a bound says, at which price per byte.
struct RoomPrice {
  double price = 0;
  Seconds bound = 0;  // of the units together
};

// What an implementation finds is the least over all ways to plan a unit, by time and price x what
// is in memory between the passes: concave in the price, and no less where more is in flight.
class PricedUnit {
 public:
  virtual ~PricedUnit() = default;
  // Errors: of building the problems.
  virtual Result<UnitPoint> least(std::int64_t in_flight, double price) = 0;
  // No more than that, by what is known without another search.
  virtual Seconds known_least(std::int64_t in_flight, double price) const = 0;

  // For so many units in that room, in bytes.
  Result<RoomPrice> price_of_room(std::int64_t in_flight, double units, double room);
  // At which bounds were asked for.
  const std::set<double>& prices() const { return prices_; }

 protected:
  // `is_stopped`: no more is searched, bounds are what is known.
  explicit PricedUnit(std::function<bool()> is_stopped) : is_stopped_(std::move(is_stopped)) {}
  bool is_stopped() const { return is_stopped_(); }
  // What was found so far is of another problem than what follows.
  void begin_anew() { ++problems_; }

 private:
  Result<RoomPrice> price_of_room_now(std::int64_t in_flight, double units, double room);
  const std::function<bool()> is_stopped_;
  std::set<double> prices_;
  int problems_ = 1;
};

}  // namespace autopar
