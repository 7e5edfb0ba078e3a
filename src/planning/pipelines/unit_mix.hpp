// How many of a chunk's units take which of the plans that were found for one of them, so that they
// fit and take as little time as they can.
//
//   best_mix(plans, {.units = 16, .in_flight = 8, .room = 60e9})
//       // 5 units take the larger plan, 11 the smaller one
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

// Of one unit.
struct UnitPlan {
  Seconds seconds = 0;          // a step of the unit by itself
  double stored = 0, kept = 0;  // bytes between the passes: once, and per micro-batch in flight
  std::size_t way = 0;          // its mesh and what is repeated
  std::size_t mesh = 0;         // ways of one mesh have one number
  std::size_t look = 0;         // among the plans of that way
  bool is_of_left = false;      // among those by prices that are left
  double bytes(std::int64_t in_flight) const {
    return stored + static_cast<double>(in_flight) * kept;
  }
};

using TwoWays = std::pair<std::size_t, std::size_t>;  // of the smaller plan and of the larger one
struct UnitMix {
  UnitPlan smaller, larger;  // on one mesh
  double of_larger = 0;      // units that take the larger plan
  double units = 0;          // in all
  Seconds seconds = 0;       // of all units, with MixAsked::slower_of
  double bytes = 0;
  bool fits = true;
  double too_large = 0;  // its bytes by the room
  // No plan, whatever it takes, is faster.
  bool is_fastest = false;
  Seconds fastest = 0;             // what all units take with the fastest plan
  Seconds seconds_alone() const {  // of all units, each by itself
    return (units - of_larger) * smaller.seconds + of_larger * larger.seconds;
  }
  // Its units do not all repeat the same.
  bool has_two_ways() const { return of_larger > 0 && smaller.way != larger.way; }
  TwoWays ways() const { return {smaller.way, has_two_ways() ? larger.way : smaller.way}; }
};

struct MixAsked {
  double units = 0;
  std::int64_t in_flight = 1;
  double room = 0;                             // of all units
  std::map<std::size_t, double> room_of = {};  // of ways of which another one is known
  // What units of a way take in a chunk, by what they take by themselves, where that is known. Ways
  // are in the order of what they repeat, and who repeats more is slower by that at least: on 70B
  // and 405B by 1 to 3 % with nothing repeated, 4 to 5 % cheap ops, 6 to 7 % products. Of ways
  // that repeat less than all that are known the least of that is hoped for, and no more than 1.
  std::map<std::size_t, double> slower_of = {};
  double room_on(std::size_t way) const {
    const auto known = room_of.find(way);
    return known == room_of.end() ? room : known->second;
  }
  // The same of units of two ways, by these. Where no room is known, each way has the part that is
  // left of what it would have alone. What they take has that factor beside those of both ways.
  std::map<TwoWays, double> room_of_two = {}, slower_of_two = {};
  double slower_of_both(const TwoWays& ways) const {
    const auto known = slower_of_two.find(ways);
    return known == slower_of_two.end() ? 1 : known->second;
  }
  double slower_on(std::size_t way) const {
    const auto known = slower_of.find(way);
    if (known != slower_of.end()) return known->second;
    double least = 1, most = 0;
    for (const auto& [other, slower] : slower_of) {
      least = std::min(least, slower);
      if (other < way) most = std::max(most, slower);
    }
    return most > 0 ? most : least;
  }
};
// With two plans at most, which is enough: of all mixtures of plans under one limit some best one
// has no more (a linear programme with two rows). A later way, which repeats more, has to be faster
// by kPartGain, and so have two ways. Where nothing fits, the fewest bytes. Nothing: there are no
// plans. O(plans^2).
std::optional<UnitMix> best_mix(const std::vector<UnitPlan>& plans, const MixAsked& asked);

// The plan that costs least where a byte has that price, in seconds; at an infinite price the
// smallest. Precondition: there are plans.
const UnitPlan& cheapest(const std::vector<UnitPlan>& plans, std::int64_t in_flight, double price);

// The units of a chunk that shares the room of its stage with others.
struct SharingUnits {
  double units = 0;
  std::int64_t in_flight = 1;
};
struct SharedRoom {
  std::vector<double> bytes;  // for each
  double price = 0;           // seconds per byte
  double too_large = 1;       // the least that all take by the room, where that does not fit
};
// So that all of them take as little time as they can: memory has one price for all (a Lagrange
// multiplier, by bisection). Where the fastest plans leave room, or the smallest do not fit, each
// gets as much more, or less, as it has. Precondition: there are plans.
SharedRoom shared_room(const std::vector<UnitPlan>& plans, const std::vector<SharingUnits>& chunks,
                       double room);

}  // namespace autopar
