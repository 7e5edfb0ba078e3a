#include "planning/pipelines/unit_mix.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "planning/pipelines/pipeline_tuning.hpp"

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

// As many of the larger plan as fit, but one unit; nothing: none does.
std::optional<UnitMix> mixed_of_two(const UnitPlan& smaller, const UnitPlan& larger,
                                    const MixAsked& asked) {
  UnitMix mix{smaller, larger, 1};
  const double of_smaller = smaller.bytes(asked.in_flight);
  const double of_larger = larger.bytes(asked.in_flight);
  const auto known = asked.room_of_two.find(mix.ways());
  const bool is_known = known != asked.room_of_two.end();
  const double less = of_smaller / (is_known ? known->second : asked.room_on(smaller.way));
  const double more = of_larger / (is_known ? known->second : asked.room_on(larger.way)) - less;
  if (more <= 0) return {};
  constexpr double kRounding = 1e-9;  // of parts of a room
  const double most = std::floor((1 - asked.units * less) / more + kRounding);
  mix.of_larger = std::min(most, std::ceil(asked.units) - 1);
  if (mix.of_larger <= 0) return {};
  mix.units = asked.units;
  const double rest = asked.units - mix.of_larger;
  mix.seconds = asked.slower_of_both(mix.ways()) *
                (asked.slower_on(smaller.way) * rest * smaller.seconds +
                 asked.slower_on(larger.way) * mix.of_larger * larger.seconds);
  mix.bytes = rest * of_smaller + mix.of_larger * of_larger;
  return mix;
}

std::vector<double> bytes_at(const std::vector<UnitPlan>& plans,
                             const std::vector<SharingUnits>& chunks, double price) {
  std::vector<double> bytes;
  for (const SharingUnits& chunk : chunks) {
    bytes.push_back(chunk.units * cheapest(plans, chunk.in_flight, price).bytes(chunk.in_flight));
  }
  return bytes;
}

double sum_of(const std::vector<double>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

}  // namespace

const UnitPlan& cheapest(const std::vector<UnitPlan>& plans, std::int64_t in_flight, double price) {
  const auto rank = [&](const UnitPlan& plan) {
    const double held = plan.bytes(in_flight);
    return std::pair(std::isinf(price) ? held : plan.seconds + price * held, held);
  };
  return *std::min_element(plans.begin(), plans.end(),
                           [&](const UnitPlan& a, const UnitPlan& b) { return rank(a) < rank(b); });
}

SharedRoom shared_room(const std::vector<UnitPlan>& plans, const std::vector<SharingUnits>& chunks,
                       double room) {
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<double> larger = bytes_at(plans, chunks, 0);
  std::vector<double> smaller = bytes_at(plans, chunks, infinite);
  if (sum_of(larger) > room && sum_of(smaller) < room) {
    double cheap = 0, dear = plans.front().seconds / room;
    for (int i = 0; i < tuning::chunks::kDoublings && sum_of(bytes_at(plans, chunks, dear)) > room;
         ++i)
      dear *= 2;
    for (int i = 0; i < tuning::chunks::kHalvings; ++i) {
      const double price = (cheap + dear) / 2;
      std::vector<double> bytes = bytes_at(plans, chunks, price);
      (sum_of(bytes) > room ? cheap : dear) = price;
      (sum_of(bytes) > room ? larger : smaller) = std::move(bytes);
    }
    // Between the two, where plans of one price are mixed.
    const double fits = sum_of(smaller), more = sum_of(larger) - fits;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      smaller[c] += (larger[c] - smaller[c]) * (room - fits) / more;
    }
    return {std::move(smaller), dear};
  }
  SharedRoom shared;
  shared.bytes = sum_of(larger) > room ? smaller : larger;
  const double sum = sum_of(shared.bytes);
  for (double& bytes : shared.bytes) bytes *= sum > 0 ? room / sum : 0;
  shared.too_large = std::max(1.0, sum / room);
  return shared;
}

std::optional<UnitMix> best_mix(const std::vector<UnitPlan>& plans, const MixAsked& asked) {
  std::vector<UnitPlan> order = plans;  // by bytes, those that take less time than all before
  std::sort(order.begin(), order.end(), [&](const UnitPlan& a, const UnitPlan& b) {
    return std::tuple(a.way, a.bytes(asked.in_flight), a.seconds, a.is_of_left, a.look) <
           std::tuple(b.way, b.bytes(asked.in_flight), b.seconds, b.is_of_left, b.look);
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
    if (mix.smaller.way != best->smaller.way) {
      return mix.seconds < (1 - tuning::chunks::kPartGain) * best->seconds;
    }
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
  // Of which one repeats more.
  std::optional<UnitMix> of_two;
  for (const UnitPlan& a : useful) {
    for (const UnitPlan& b : useful) {
      if (a.mesh != b.mesh || a.way <= b.way) continue;
      const auto mix = mixed_of_two(a, b, asked);
      if (mix && (!of_two || mix->seconds < of_two->seconds)) of_two = mix;
    }
  }
  const bool is_faster =
      of_two && best &&
      (!best->fits || of_two->seconds < (1 - tuning::chunks::kPartGain) * best->seconds);
  if (is_faster) best = of_two;
  if (best) {
    const Seconds least = asked.units * fastest;
    best->fastest = least;
    best->is_fastest = best->fits && (1 - tuning::chunks::kPartGain) * best->seconds <= least;
  }
  return best;
}

}  // namespace autopar
