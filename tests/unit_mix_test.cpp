// best_mix() against all ways to give units plans.
#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "planning/pipelines/unit_mix.hpp"
#include "planning/pipelines/unit_room.hpp"

namespace autopar::unit_mix_test {

namespace {

// The least that so many units take in the room, each with a plan of its own of one way.
Seconds least(const std::vector<UnitPlan>& plans, std::size_t way, const MixAsked& asked, int units,
              double room) {
  if (room < 0) return std::numeric_limits<Seconds>::infinity();
  if (units == 0) return 0;
  Seconds best = std::numeric_limits<Seconds>::infinity();
  for (const UnitPlan& plan : plans) {
    if (plan.way != way) continue;
    const double left = room - plan.bytes(asked.in_flight);
    best = std::min(best, plan.seconds + least(plans, way, asked, units - 1, left));
  }
  return best;
}

// The same of two plans of different ways, so many units each, of which the later way is smaller.
Seconds least_of_two_ways(const std::vector<UnitPlan>& plans, const MixAsked& asked, int units) {
  Seconds best = std::numeric_limits<Seconds>::infinity();
  for (const UnitPlan& a : plans) {
    for (const UnitPlan& b : plans) {
      const auto known = asked.room_of_two.find({a.way, b.way});
      const bool is_known = known != asked.room_of_two.end();
      const double part_of_a =
          a.bytes(asked.in_flight) / (is_known ? known->second : asked.room_on(a.way));
      const double part_of_b =
          b.bytes(asked.in_flight) / (is_known ? known->second : asked.room_on(b.way));
      if (a.way <= b.way || part_of_b <= part_of_a) continue;
      for (int of_a = 1; of_a < units; ++of_a) {
        if (of_a * part_of_a + (units - of_a) * part_of_b > 1 + 1e-9) continue;
        const Seconds sum = of_a * asked.slower_on(a.way) * a.seconds +
                            (units - of_a) * asked.slower_on(b.way) * b.seconds;
        best = std::min(best, asked.slower_of_both({a.way, b.way}) * sum);
      }
    }
  }
  return best;
}

// The least that one unit takes in so much room, with plans mixed as one likes.
Seconds least_of_mixes(const std::vector<UnitPlan>& plans, std::int64_t in_flight, double room) {
  Seconds least = std::numeric_limits<Seconds>::infinity();
  for (const UnitPlan& a : plans) {
    if (a.bytes(in_flight) > room * (1 + 1e-9)) continue;
    least = std::min(least, a.seconds);
    for (const UnitPlan& b : plans) {
      const double more = b.bytes(in_flight) - a.bytes(in_flight);
      if (b.bytes(in_flight) <= room) continue;
      const double part = std::max(0.0, room - a.bytes(in_flight)) / more;
      least = std::min(least, a.seconds + part * (b.seconds - a.seconds));
    }
  }
  return least;
}

}  // namespace

TEST_CASE("chunks share a room as suits all of them") {
  std::mt19937 random(11);
  const auto number = [&](int least, int most) {
    return static_cast<double>(std::uniform_int_distribution<int>(least, most)(random));
  };
  int bound = 0, ample = 0, tight = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<UnitPlan> plans;
    for (std::size_t l = 0; l < 5; ++l) {
      plans.push_back({number(10, 40), number(0, 9), number(1, 9), 0, 0, l});
    }
    const std::vector<SharingUnits> chunks = {{number(1, 4), 8}, {number(1, 4), 1}};
    const double room = number(20, 400);
    const std::vector<double> shares = shared_room(plans, chunks, room).bytes;
    REQUIRE(shares.size() == 2);
    CHECK(std::abs(shares[0] + shares[1] - room) < 1e-6 * room);
    const auto takes = [&](double first) {
      const double of_each[] = {first, room - first};
      Seconds sum = 0;
      for (std::size_t c = 0; c < 2; ++c) {
        const double units = chunks[c].units;
        sum += units * least_of_mixes(plans, chunks[c].in_flight, of_each[c] / units);
      }
      return sum;
    };
    Seconds best = std::numeric_limits<Seconds>::infinity();
    for (int step = 0; step <= 400; ++step) best = std::min(best, takes(room * step / 400));
    Seconds fastest = 0;
    for (const SharingUnits& chunk : chunks) {
      fastest += chunk.units * least_of_mixes(plans, chunk.in_flight, 1e9);
    }
    if (best == std::numeric_limits<Seconds>::infinity()) {
      ++tight;
      continue;
    }
    (takes(shares[0]) > fastest ? bound : ample) += 1;
    CHECK(takes(shares[0]) <= best * (1 + 1e-6));
  }
  CHECK(bound > 30);
  CHECK(ample > 50);
  CHECK(tight > 10);
}

TEST_CASE("a mix of two plans is near the best of all") {
  std::mt19937 random(7);
  const auto number = [&](int least, int most) {
    return static_cast<double>(std::uniform_int_distribution<int>(least, most)(random));
  };
  int mixed = 0, unfit = 0, two_ways = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<UnitPlan> plans;
    for (std::size_t l = 0; l < 6; ++l) {
      plans.push_back({number(10, 40), number(0, 9), number(1, 9), l % 2, 0, l});
    }
    MixAsked asked{4, static_cast<std::int64_t>(number(1, 3)), number(5, 130)};
    if (round % 2 == 0) asked.room_of[1] = number(5, 130);
    if (round % 3 == 0) asked.slower_of[0] = number(2, 6) / 4;  // and of what repeats more, way 1
    if (round % 5 == 0) asked.room_of_two[{1, 0}] = number(5, 130);
    if (round % 7 == 0) asked.slower_of_two[{1, 0}] = number(3, 6) / 4;
    Seconds best = std::numeric_limits<Seconds>::infinity(), longest = 0;
    for (const UnitPlan& plan : plans) {
      const double slower = asked.slower_on(plan.way);
      best = std::min(best, slower * least(plans, plan.way, asked, 4, asked.room_on(plan.way)));
      longest = std::max(longest, slower * plan.seconds);
    }
    const bool one_way_fits = best < std::numeric_limits<Seconds>::infinity();
    best = std::min(best, least_of_two_ways(plans, asked, 4));
    const bool fits = best < std::numeric_limits<Seconds>::infinity();
    const auto mix = best_mix(plans, asked);
    REQUIRE(mix.has_value());
    CHECK(mix->fits <= fits);
    CHECK(mix->fits >= one_way_fits);
    const double others = mix->units - mix->of_larger;
    const double slower = asked.slower_of_both(mix->ways());
    CHECK(
        mix->seconds ==
        Approx(slower * (asked.slower_on(mix->smaller.way) * others * mix->smaller.seconds +
                         asked.slower_on(mix->larger.way) * mix->of_larger * mix->larger.seconds)));
    CHECK(mix->bytes == others * mix->smaller.bytes(asked.in_flight) +
                            mix->of_larger * mix->larger.bytes(asked.in_flight));
    two_ways += mix->has_two_ways() ? 1 : 0;
    if (!mix->fits) {
      ++unfit;
      continue;
    }
    if (!mix->has_two_ways()) CHECK(mix->bytes <= asked.room_on(mix->smaller.way));
    CHECK(mix->seconds >= best * (1 - 1e-9));
    // Two plans are enough but for what whole units leave over: less than one unit.
    CHECK(mix->seconds <= best + longest);
    mixed += mix->of_larger > 0 && mix->of_larger < 4 ? 1 : 0;
  }
  CHECK(mixed > 30);
  CHECK(two_ways > 20);
  CHECK(unfit > 10);
}

TEST_CASE("a way of which nothing is known is as slow as those that repeat less") {
  const MixAsked asked{.slower_of = {{0, 1.25}, {1, 0.75}}};
  CHECK(asked.slower_on(0) == 1.25);
  CHECK(asked.slower_on(1) == 0.75);
  CHECK(asked.slower_on(2) == 1.25);  // as the slowest of those that repeat less
  CHECK(MixAsked{.slower_of = {{0, 1.25}}}.slower_on(2) == 1.25);
  CHECK(MixAsked{.slower_of = {{1, 1.25}}}.slower_on(0) == 1);
  CHECK(MixAsked{.slower_of = {{1, 0.75}}}.slower_on(0) == 0.75);
}

TEST_CASE("units get what a chunk leaves of its room, and save more where that does not help") {
  const auto units_of = [](double bytes) {
    UnitMix mix;
    mix.bytes = bytes;
    return mix;
  };
  UnitRoom room(80);
  CHECK(room.next(units_of(60), 70) == 70);  // 10 are left
  CHECK(room.next(units_of(70), 83) == 67);
  // Of 3 that they saved the chunk has 1.5: for 1.5 more they save 3.
  CHECK(room.next(units_of(67), 81.5) == 64);
  // Nothing of 3: sixteen times as much as is missing, at most.
  CHECK(room.next(units_of(64), 81.5) == 64 - 1.5 * 16);
  CHECK(!room.is_hopeless());
  // A chunk whose peak does not follow at all is given up.
  int more = 0;
  for (double of_units = 40; !room.is_hopeless(); of_units /= 2, ++more) {
    CHECK(room.next(units_of(of_units), 81.5) < of_units);
  }
  CHECK(more <= 4);
}

TEST_CASE("without plans there is no mix") { CHECK(!best_mix({}, {4, 1, 10}).has_value()); }

}  // namespace autopar::unit_mix_test
