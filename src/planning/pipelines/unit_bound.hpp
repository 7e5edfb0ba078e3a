// What no plan of a unit is below where memory has a price, whatever the chunk that has the unit
// repeats.
//
// Which values a chunk keeps is found for the chunk as a whole: where its units repeat all of their
// ops, most of them keep nothing at all, and checkpoints lie layers apart. So a unit that is
// planned by itself at a level of recomputation says nothing of chunks. For all of them holds:
//
//   time + price x bytes  >=  least of (time with nothing repeated + price x what is stored)
//                           + least of (what is repeated + price x what is kept)
//
// The second of these takes for each value that the backward pass reads an even part over the
// devices, or what the products take that make it again, evenly split (least_kept()).
#pragma once

#include <memory>

#include "planning/pipelines/unit_memory.hpp"
#include "recompute/least_kept.hpp"

namespace autopar {

// What a unit may keep, and repeat in place of that.
struct UnitKeeping {
  Recompute most = Recompute::kFull;  // allowed
  Graph unit;
  std::vector<double> bytes;    // per value, of each device, for each micro-batch in flight
  std::vector<Seconds> repeat;  // per op, of a step
};

class UnitBound : public PricedUnit {
 public:
  // `memory`: of ways that repeat nothing. Without `keeping` nothing may be repeated: these ways
  // are all that there are.
  UnitBound(std::shared_ptr<UnitMemory> memory, std::optional<UnitKeeping> keeping,
            std::function<bool()> is_stopped)
      : PricedUnit(std::move(is_stopped)),
        memory_(std::move(memory)),
        keeping_(std::move(keeping)) {}

  Result<UnitPoint> least(std::int64_t in_flight, double price) override;
  Seconds known_least(std::int64_t in_flight, double price) const override;

 private:
  // Of what is kept or repeated.
  UnitPoint of_keeping(std::int64_t in_flight, double price) const;

  const std::shared_ptr<UnitMemory> memory_;
  const std::optional<UnitKeeping> keeping_;
  mutable std::map<double, UnitPoint> known_;  // by the price of a byte for all in flight
};

}  // namespace autopar
