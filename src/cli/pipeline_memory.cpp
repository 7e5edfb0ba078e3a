// What memory adds to the chunks of a pipeline, and how they are planned where it binds.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "cli/pipeline_bound.hpp"
#include "cli/pipeline_tuning.hpp"

namespace autopar::cli {

Result<std::optional<double>> PipelineBounds::price_for(PricedUnit& unit, std::int64_t in_flight,
                                                        double count, double room) {
  AUTOPAR_TRY(found, unit.price_of_room(in_flight, count, room));
  const Seconds free = count * unit.known_least(in_flight, 0);
  if (found.bound <= (1 + tuning::units::kWorthwhile) * free) return std::optional<double>();
  return std::optional(found.price);
}

// The fewer are in flight, the less memory costs; what is found of some is a bound for others.
Status PipelineBounds::find_prices(PricedUnit& unit, double usual,
                                   const std::vector<std::int64_t>& flying, double room) {
  std::set<std::int64_t, std::greater<>> open(flying.begin(), flying.end());
  while (!open.empty()) {
    const std::int64_t most = *open.begin();
    AUTOPAR_TRY(price, price_for(unit, most, usual, room));
    if (!price) break;
    const auto alike = static_cast<double>(most) * tuning::units::kAlikeInFlight;
    std::erase_if(open, [&](std::int64_t one) { return static_cast<double>(one) > alike; });
  }
  return Ok{};
}

std::vector<Seconds> PipelineBounds::most_of_units(const Least& units, const PricedUnit& unit,
                                                   std::int64_t in_flight, double room) {
  std::vector<Seconds> most(static_cast<std::size_t>(units.usual.back()) + 1, 0);
  for (const double price : unit.prices()) {
    const Seconds more = unit.known_least(in_flight, price) - units.launch - units.usual_step;
    for (std::size_t n = 0; n < most.size(); ++n) {
      most[n] = std::max(most[n], static_cast<double>(n) * more - price * room);
    }
  }
  return most;
}

Result<std::vector<PipelineBounds::ChunkMemory>> PipelineBounds::memory_of_chunks(
    const Least& units, PricedUnit& unit, const PipelineSchedule& schedule) const {
  const std::size_t chunks = schedule.stage_of_chunk.size(), stages = schedule.lines.size();
  if (chunks % stages != 0) return std::vector<ChunkMemory>();
  const double usual = units.usual.back() / static_cast<double>(chunks);
  std::vector<ChunkMemory> memory(chunks);
  const std::vector<std::int64_t> flying = in_flight(schedule).of_chunk;
  const auto room =
      static_cast<double>(room_) * static_cast<double>(stages) / static_cast<double>(chunks);
  if (chunks == stages) {
    AUTOPAR_RETURN_IF_ERROR(find_prices(unit, usual, flying, room));
    for (std::size_t c = 0; c < chunks; ++c) {
      memory[c].of_units = most_of_units(units, unit, flying[c], room);
    }
    return memory;
  }
  // Chunks of one stage share its room, so all have one price: one that suits those in the middle.
  std::vector<std::int64_t> order = flying;
  std::sort(order.begin(), order.end());
  AUTOPAR_TRY(price, price_for(unit, order[(chunks - 1) / 2], usual, room));
  if (!price) return std::vector<ChunkMemory>();
  AUTOPAR_RETURN_IF_ERROR(unit.least(order.front(), *price));
  for (std::size_t c = 0; c < chunks; ++c) {
    const Seconds least = unit.known_least(flying[c], *price);
    memory[c].per_unit = least - units.launch - units.usual_step;
    memory[c].off = *price * room;
  }
  return memory;
}

Result<ChunkSeconds> PipelineBounds::memory_seconds(const PipelineSchedule& schedule,
                                                    const Cluster& stage) {
  AUTOPAR_TRY(units, least_on(stage));
  const bool is_told = units != nullptr && units->memory != nullptr;
  if (!is_told || schedule.stage_of_chunk.size() != schedule.lines.size()) return ChunkSeconds();
  AUTOPAR_TRY(memory, memory_of_chunks(*units, *units->memory, schedule));
  if (memory.empty()) return ChunkSeconds();
  // Chunks that repeat from unit to unit keep less than their units by themselves: where these do
  // not fit, they say nothing about cuts.
  const std::vector<std::int64_t> flying = in_flight(schedule).of_chunk;
  const double fewest =
      units->memory->fewest_bytes(*std::max_element(flying.begin(), flying.end()));
  const double usual = units->usual.back() / static_cast<double>(flying.size());
  if (usual * fewest > static_cast<double>(room_)) return ChunkSeconds();
  const double factor =
      static_cast<double>(stage.device_count()) / static_cast<double>(schedule.micro_batches);
  std::vector<double> until(step_.ops.size() + 1);
  for (std::size_t o = 0; o < until.size(); ++o) {
    until[o] = units_until(o < step_.ops.size() ? OpId(static_cast<std::int64_t>(o)) : OpId());
  }
  return ChunkSeconds([memory, factor, until](std::size_t c, OpId from, OpId to) {
    const double count = until[to.valid() ? to.index() : until.size() - 1] - until[from.index()];
    const std::vector<Seconds>& most = memory[c].of_units;
    const auto whole = std::min(static_cast<std::size_t>(count), most.size() - 1);
    const std::size_t next = std::min(whole + 1, most.size() - 1);
    const double part = count - static_cast<double>(whole);
    return factor * (most[whole] + part * (most[next] - most[whole]));
  });
}

double PipelineBounds::units_until(OpId op) const {
  if (units_.kinds.empty()) return 0;
  const std::size_t place = op.valid() ? place_of(op) : places_.size() + 1;
  const auto busy = [&](std::size_t p) { return forward_[p] + backward_[p]; };
  double units = 0;
  for (std::size_t u = 0; u + 1 < unit_ends_.size(); ++u) {
    const std::size_t from = unit_ends_[u], to = unit_ends_[u + 1];
    if (to <= place) {
      units += 1;
    } else if (from < place && busy(to) > busy(from)) {
      units += (busy(place) - busy(from)) / (busy(to) - busy(from));
    }
  }
  return units;
}

Result<ChunkHint> PipelineBounds::hint(const Cluster& stage, double first, double units,
                                       std::int64_t in_flight, double part) {
  AUTOPAR_TRY(least, least_on(stage));
  ChunkHint hint;
  const bool is_told = least != nullptr && least->memory != nullptr;
  if (!is_told || units < tuning::units::kManyUnits) return hint;
  const double room = part * static_cast<double>(room_);
  AUTOPAR_TRY(found, least->memory->price_of_room(in_flight, units, room));
  hint.recompute = least->memory->ways()[found.way].recompute;
  AUTOPAR_TRY(meshes, least->memory->meshes_near(in_flight, found));
  hint.meshes = std::move(meshes);
  // With ample memory a search is quick, and sees what the ends of units have to do with each
  // other.
  if (found.fitting == 0) return hint;
  hint.parts = [this, least, first, units, in_flight, room](double share, bool fills) {
    return parts_in(least->of_plans, first, units, in_flight, room, share, fills);
  };
  return hint;
}

// What fits leaves some of the room. What `fills` it is the plan at the price beyond, which some of
// the chunk's first units take. Both repeat the same, on one mesh.
Result<HintedParts> PipelineBounds::parts_in(const Weighting& least, double first, double units,
                                             std::int64_t in_flight, double all, double share,
                                             bool fills) const {
  HintedParts hinted;
  double room = share * all;
  UnitMemory& usual = *least.memories[units_.usual];
  AUTOPAR_TRY(found, usual.price_of_room(in_flight, units, room));
  const UnitWay& way = usual.ways()[found.way];
  hinted.weights = least.weights;
  hinted.recompute = way.recompute;
  hinted.mesh = way.mesh;
  using Parts = std::vector<std::shared_ptr<const UnitParts>>;  // per kind
  const auto parts_at = [&](double price) -> Result<Parts> {
    Parts kinds;
    for (const auto& memory : least.memories) {
      AUTOPAR_TRY(parts, memory->parts(way.recompute, way.mesh, in_flight, price));
      // Where no op of such a unit would be repeated.
      if (parts == nullptr) {
        AUTOPAR_TRY(plain, memory->parts(Recompute::kNone, way.mesh, in_flight, price));
        parts = std::move(plain);
      }
      kinds.push_back(std::move(parts));
    }
    return kinds;
  };
  AUTOPAR_TRY(fitting, parts_at(found.fitting));
  Parts larger = fitting;
  double until = first;  // units that take the larger plan
  if (fills && found.beyond >= 0 && fitting[units_.usual] != nullptr) {
    AUTOPAR_TRY(beyond, parts_at(found.beyond));
    larger = std::move(beyond);
    const double bytes = usual.bytes_of(found.way, in_flight, found.fitting);
    const double more = usual.bytes_of(found.way, in_flight, found.beyond) - bytes;
    // Where chunks keep less than their units by themselves, what fits is taken to fit just so.
    if (!found.fits) room = share * units * bytes;
    if (more > 0) until += std::clamp(std::floor((room - units * bytes) / more), 0.0, units);
  }
  hinted.chosen = chosen_of(units_, [fitting, larger, until](const StepUnits::Place& place) {
    return (static_cast<double>(place.unit) < until ? larger : fitting)[place.kind].get();
  });
  return hinted;
}

}  // namespace autopar::cli
