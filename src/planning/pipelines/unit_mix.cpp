#include "planning/pipelines/unit_mix.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace autopar {

namespace {

UnitMix mixed(const UnitPlan& smaller, const UnitPlan& larger, const MixAsked& asked) {
  const double bytes = smaller.bytes(asked.in_flight);
  const double more = larger.bytes(asked.in_flight) - bytes;
  const double room = asked.room_on(smaller.way);
  UnitMix mix{smaller, larger};
  if (more > 0) {
    mix.of_larger =
        std::clamp(std::floor((room - asked.units * bytes) / more), 0.0, std::floor(asked.units));
    // A part of a unit goes with the others.
    if (mix.of_larger == std::floor(asked.units) && asked.units * (bytes + more) <= room) {
      mix.of_larger = asked.units;
    }
  }
  mix.units = asked.units;
  const double rest = asked.units - mix.of_larger;
  mix.seconds =
      asked.slower_on(smaller.way) * (rest * smaller.seconds + mix.of_larger * larger.seconds);
  mix.bytes = asked.units * bytes + mix.of_larger * more;
  mix.fits = mix.bytes <= room;
  mix.too_large = room > 0 ? mix.bytes / room : std::numeric_limits<double>::infinity();
  return mix;
}

}  // namespace

std::optional<UnitMix> best_mix(const std::vector<UnitPlan>& plans, const MixAsked& asked) {
  std::vector<UnitPlan> order = plans;  // by bytes, those that take less time than all before
  std::sort(order.begin(), order.end(), [&](const UnitPlan& a, const UnitPlan& b) {
    return std::tuple(a.way, a.bytes(asked.in_flight), a.seconds, a.look) <
           std::tuple(b.way, b.bytes(asked.in_flight), b.seconds, b.look);
  });
  std::vector<UnitPlan> useful;
  for (const UnitPlan& plan : order) {
    const bool is_new_way = useful.empty() || useful.back().way != plan.way;
    if (is_new_way || plan.seconds < useful.back().seconds) useful.push_back(plan);
  }
  std::optional<UnitMix> best;
  const auto is_better = [&](const UnitMix& mix) {
    if (!best || mix.fits != best->fits) return !best || mix.fits;
    if (!mix.fits) return mix.too_large < best->too_large;
    return std::pair(mix.seconds, mix.bytes) < std::pair(best->seconds, best->bytes);
  };
  Seconds fastest = std::numeric_limits<Seconds>::infinity();
  for (std::size_t a = 0; a < useful.size(); ++a) {
    fastest = std::min(fastest, asked.slower_on(useful[a].way) * useful[a].seconds);
    for (std::size_t b = a; b < useful.size() && useful[b].way == useful[a].way; ++b) {
      const UnitMix mix = mixed(useful[a], useful[b], asked);
      if (is_better(mix)) best = mix;
    }
  }
  if (best) best->is_fastest = best->fits && best->seconds <= asked.units * fastest;
  return best;
}

}  // namespace autopar
