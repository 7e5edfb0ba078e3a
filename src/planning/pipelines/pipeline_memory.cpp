// What memory adds to the chunks of a pipeline, and how they are planned where it binds.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "planning/pipelines/pipeline_bound.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/stage_memory.hpp"
#include "support/parallel.hpp"

namespace autopar {

Result<std::optional<double>> PipelineBounds::price_for(PricedUnit& unit, std::int64_t in_flight,
                                                        double count, double room) {
  AUTOPAR_TRY(found, unit.price_of_room(in_flight, count, room));
  const Seconds free = count * unit.known_least(in_flight, 0);
  if (found.bound <= (1 + tuning::units::kWorthwhile) * free) return std::optional<double>();
  return std::optional(found.price);
}

// The fewer are in flight, the less memory costs; what is found of some is a bound for others.
Status PipelineBounds::find_prices(PricedUnit& unit, double usual,
                                   const std::vector<std::int64_t>& flying, double room,
                                   double alike_part) {
  std::set<std::int64_t, std::greater<>> open(flying.begin(), flying.end());
  while (!open.empty()) {
    const std::int64_t most = *open.begin();
    AUTOPAR_TRY(price, price_for(unit, most, usual, room));
    if (!price) break;
    const auto alike = static_cast<double>(most) * alike_part;
    std::erase_if(open, [&](std::int64_t one) { return static_cast<double>(one) > alike; });
  }
  return Ok{};
}

std::vector<Seconds> PipelineBounds::most_of_units(const Least& units, const PricedUnit& unit,
                                                   std::int64_t in_flight, double room) {
  std::vector<Seconds> most(static_cast<std::size_t>(units.usual.back()) + 1, 0);
  for (const double price : unit.prices()) {
    const Seconds more = unit.known_least(in_flight, price) - units.taken_off - units.usual_step;
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
    AUTOPAR_RETURN_IF_ERROR(find_prices(unit, usual, flying, room, tuning::units::kAlikeInFlight));
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
    memory[c].per_unit = least - units.taken_off - units.usual_step;
    memory[c].off = *price * room;
  }
  return memory;
}

Result<ChunkSeconds> PipelineBounds::memory_seconds(const PipelineSchedule& schedule,
                                                    const Cluster& stage, bool of_cuts,
                                                    UnitEnds ends) {
  AUTOPAR_TRY(units, least_on(stage));
  const std::size_t chunks = schedule.stage_of_chunk.size(), stages = schedule.lines.size();
  // Where the runtime alone fills a device nothing fits, however a step is cut.
  if (units == nullptr || !units->has_plans() || chunks % stages != 0 || room_ <= 0) {
    return ChunkSeconds();
  }
  const std::vector<std::int64_t> flying = in_flight(schedule).of_chunk;
  const double even =
      static_cast<double>(room_) * static_cast<double>(stages) / static_cast<double>(chunks);
  const double on_average = units->usual.back() / static_cast<double>(chunks);
  UnitMemory& usual = *units->plans(ends).memories[units_.usual];
  AUTOPAR_RETURN_IF_ERROR(find_prices(usual, on_average, flying, even, tuning::units::kAlikePlans));
  AUTOPAR_TRY(plans, usual.plans());
  if (plans.empty()) return ChunkSeconds();
  const Seconds bound = units->usual_step + units->taken_off;
  const std::vector<std::vector<Seconds>> more =
      chunks == stages ? more_alone(plans, flying, bound, on_average, of_cuts)
                       : more_shared(plans, schedule, bound, on_average, of_cuts);
  const double factor =
      static_cast<double>(stage.device_count()) / static_cast<double>(schedule.micro_batches);
  std::vector<double> until(step_.ops.size() + 1);
  for (std::size_t o = 0; o < until.size(); ++o) {
    until[o] = units_until(o < step_.ops.size() ? OpId(static_cast<std::int64_t>(o)) : OpId());
  }
  return ChunkSeconds([more, factor, until](std::size_t c, OpId from, OpId to) {
    const double count = until[to.valid() ? to.index() : until.size() - 1] - until[from.index()];
    const std::vector<Seconds>& most = more[c];
    const auto whole = std::min(static_cast<std::size_t>(count), most.size() - 1);
    const std::size_t next = std::min(whole + 1, most.size() - 1);
    const double part = count - static_cast<double>(whole);
    return factor * (most[whole] + part * (most[next] - most[whole]));
  });
}

std::vector<std::vector<Seconds>> PipelineBounds::more_alone(
    const std::vector<UnitPlan>& plans, const std::vector<std::int64_t>& flying, Seconds bound,
    double on_average, bool of_cuts) const {
  auto room = static_cast<double>(room_);
  const std::int64_t most = *std::max_element(flying.begin(), flying.end());
  if (of_cuts && !best_mix(plans, {on_average, most, room})->fits) room = kInfinity;
  const auto all = static_cast<std::size_t>(on_average * static_cast<double>(flying.size()));
  std::map<std::int64_t, std::vector<Seconds>> of_flying;
  std::vector<std::vector<Seconds>> of_chunks;
  for (const std::int64_t one : flying) {
    std::vector<Seconds>& more = of_flying[one];
    for (std::size_t n = 0; more.size() <= all; ++n) {
      const auto count = static_cast<double>(n);
      const auto mix = best_mix(plans, {count, one, room});
      const Seconds before = more.empty() ? 0 : more.back();
      // What does not fit is taken to cost so much more as it is too large.
      const double too_large = mix->fits ? 1 : mix->bytes / room;
      more.push_back(std::max(before, too_large * mix->seconds - count * bound));
    }
    of_chunks.push_back(more);
  }
  return of_chunks;
}

std::vector<std::vector<Seconds>> PipelineBounds::more_shared(const std::vector<UnitPlan>& plans,
                                                              const PipelineSchedule& schedule,
                                                              Seconds bound, double on_average,
                                                              bool of_cuts) const {
  const std::vector<std::int64_t> flying = in_flight(schedule).of_chunk;
  const auto all = static_cast<std::size_t>(on_average * static_cast<double>(flying.size()));
  std::vector<std::vector<Seconds>> of_chunks(flying.size());
  for (const auto& [stage, chunks] : chunks_of_stages(schedule)) {
    std::vector<SharingUnits> sharing;
    for (const std::size_t c : chunks) sharing.push_back({on_average, flying[c]});
    SharedRoom shared = shared_room(plans, sharing, static_cast<double>(room_));
    // Where nothing fits, what holds least; nothing is said about cuts then.
    const bool is_unfit = shared.too_large > 1 && !of_cuts;
    if (!is_unfit) shared.too_large = 1;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const std::size_t c = chunks[i];
      const UnitPlan& least = cheapest(plans, flying[c], is_unfit ? kInfinity : shared.price);
      for (std::size_t n = 0; n <= all; ++n) {
        const auto count = static_cast<double>(n);
        const double over = count * least.bytes(flying[c]) - shared.bytes[i];
        const Seconds takes = count * least.seconds + shared.price * over;
        const Seconds before = n == 0 ? 0 : of_chunks[c].back();
        of_chunks[c].push_back(std::max(before, shared.too_large * takes - count * bound));
      }
    }
  }
  return of_chunks;
}

Result<Seconds> PipelineBounds::estimate_of_single(const Cluster& cluster) {
  AUTOPAR_TRY(least, least_on(cluster));
  if (least == nullptr || !least->has_plans() || room_ <= 0) return Seconds{0};
  const double units = least->usual.back();
  const auto room = static_cast<double>(room_);
  UnitMemory& usual = *least->alike.memories[units_.usual];
  AUTOPAR_RETURN_IF_ERROR(find_prices(usual, units, {1}, room, tuning::units::kAlikePlans));
  AUTOPAR_TRY(plans, usual.plans());
  const auto mix = best_mix(plans, {units, 1, room});
  if (!mix) return Seconds{0};
  const double too_large = mix->fits ? 1 : mix->bytes / room;
  const Seconds bound = units * (least->usual_step + least->taken_off);
  return least->sums.step.until.back() + std::max(0.0, too_large * mix->seconds - bound);
}

double PipelineBounds::units_until(OpId op) const {
  if (units_.kinds.empty()) return 0;
  const std::size_t place = op.valid() ? narrow_.of(op) : narrow_.end();
  const auto busy = [&](std::size_t p) { return narrow_.forward[p] + narrow_.backward[p]; };
  double units = 0;
  for (std::size_t u = 0; u + 1 < narrow_.unit_ends.size(); ++u) {
    const std::size_t from = narrow_.unit_ends[u], to = narrow_.unit_ends[u + 1];
    if (to <= place) {
      units += 1;
    } else if (from < place && busy(to) > busy(from)) {
      units += (busy(place) - busy(from)) / (busy(to) - busy(from));
    }
  }
  return units;
}

bool PipelineBounds::has_other_kinds(double first, double units) const {
  const auto begin = static_cast<std::size_t>(std::max(0.0, std::floor(first)));
  const auto end =
      std::min(static_cast<std::size_t>(std::ceil(first + units)), units_.kind_of.size());
  return std::any_of(units_.kind_of.begin() + static_cast<std::ptrdiff_t>(std::min(begin, end)),
                     units_.kind_of.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](std::size_t kind) { return kind != units_.usual; });
}

Result<std::vector<double>> PipelineBounds::rooms(const PipelineSchedule& schedule,
                                                  const Cluster& stage,
                                                  const std::vector<double>& units, UnitEnds ends) {
  const auto room = static_cast<double>(room_);
  const auto of_stage = chunks_of_stages(schedule);
  std::vector<double> rooms(units.size());
  for (const auto& [one, chunks] : of_stage) {
    for (const std::size_t c : chunks) rooms[c] = room / static_cast<double>(chunks.size());
  }
  AUTOPAR_TRY(least, least_on(stage));
  if (least == nullptr || !least->has_plans() || of_stage.size() == units.size()) return rooms;
  AUTOPAR_TRY(plans, least->plans(ends).memories[units_.usual]->plans());
  if (plans.empty()) return rooms;
  const std::vector<std::int64_t> flying = in_flight(schedule).of_chunk;
  for (const auto& [one, chunks] : of_stage) {
    std::vector<SharingUnits> sharing;
    for (const std::size_t c : chunks) sharing.push_back({units[c], flying[c]});
    const std::vector<double> shares = shared_room(plans, sharing, room).bytes;
    for (std::size_t i = 0; i < chunks.size(); ++i) rooms[chunks[i]] = shares[i];
  }
  return rooms;
}

Result<ChunkHint> PipelineBounds::hint(const Cluster& stage, double first, double units,
                                       std::int64_t in_flight, double room, UnitEnds ends) {
  AUTOPAR_TRY(least, least_on(stage));
  ChunkHint hint;
  const bool is_told = least != nullptr && least->has_plans();
  if (!is_told || units < tuning::units::kLeastUnits) return hint;
  hint.room = room;
  const MixAsked asked{units, in_flight, room};
  const Weighting& weighting = least->plans(ends);
  AUTOPAR_TRY(plans, plans_of(weighting, asked, ""));
  const auto mix = best_mix(plans, asked);
  if (!mix) return hint;
  hint.ends = ends;
  hint.has_other_kinds = has_other_kinds(first, units);
  hint.is_fastest = mix->is_fastest;
  hint.mesh = weighting.memories[units_.usual]->ways()[mix->smaller.way].mesh;
  hint.parts = [this, &weighting, first, units, in_flight](
                   MixAsked asked, const std::string& mesh) -> Result<std::optional<HintedParts>> {
    asked.units = units;
    asked.in_flight = in_flight;
    AUTOPAR_TRY(plans, plans_of(weighting, asked, mesh));
    auto mix = best_mix(plans, asked);
    if (!mix) return std::optional<HintedParts>();
    // By what units hold there was another room, so that no plans were asked for that suit this
    // one.
    if (!mix->fits || mix->seconds > (1 + tuning::units::kWorthwhile) * mix->fastest) {
      UnitMemory& usual = *weighting.memories[units_.usual];
      const std::int64_t flying = usual.looked_at_for(in_flight);
      const double more_held = mix->smaller.bytes(flying) / mix->smaller.bytes(in_flight);
      const double room = asked.room_on(mix->smaller.way) * more_held;
      AUTOPAR_RETURN_IF_ERROR(usual.price_of_room(flying, units, room));
      AUTOPAR_TRY(more, plans_of(weighting, asked, mesh));
      mix = best_mix(more, asked);
    }
    AUTOPAR_TRY(parts, parts_of(weighting, first, *mix));
    return std::optional(std::move(parts));
  };
  return hint;
}

Result<std::vector<UnitPlan>> PipelineBounds::plans_of(const Weighting& weighting,
                                                       const MixAsked& asked,
                                                       const std::string& mesh) const {
  UnitMemory& usual = *weighting.memories[units_.usual];
  AUTOPAR_TRY(plans, usual.plans());
  if (plans.empty()) {
    AUTOPAR_RETURN_IF_ERROR(usual.price_of_room(asked.in_flight, asked.units, asked.room));
    AUTOPAR_TRY(found, usual.plans());
    plans = std::move(found);
  }
  if (!mesh.empty()) {
    std::erase_if(plans, [&](const UnitPlan& plan) { return usual.ways()[plan.way].mesh != mesh; });
  }
  return plans;
}

// From there on the first one that is in no other chunk: some are in each chunk that reads them.
std::optional<OpId> PipelineBounds::first_own_op(OpId from) const {
  for (std::size_t o = from.index(); o < step_.ops.size(); ++o) {
    if (step_.ops[o].phase == Phase::kForward && decides_[o] == OpId(o)) return OpId(o);
  }
  return std::nullopt;
}

// Units of other kinds take what they have at the prices of the usual ones, on the same mesh. Where
// they repeat differently those that repeat more come first: what they make again is then made
// when the others have let go of what they keep.
Result<HintedParts> PipelineBounds::parts_of(const Weighting& least, double first,
                                             const UnitMix& mix) const {
  HintedParts hinted;
  UnitMemory& usual = *least.memories[units_.usual];
  hinted.weights = least.weights;
  hinted.mesh = usual.ways()[mix.smaller.way].mesh;
  hinted.mix = mix;
  using Parts = std::vector<std::shared_ptr<const UnitParts>>;  // per kind
  const auto parts_at = [&](const UnitPlan& plan) -> Result<Parts> {
    const UnitMemory::Asked asked = usual.asked_of(plan);
    const UnitWay& way = usual.ways()[plan.way];
    Parts kinds(least.memories.size());
    const auto find = [&](std::size_t kind) -> Status {
      UnitMemory& memory = *least.memories[kind];
      if (&memory == &usual) {
        AUTOPAR_TRY(parts, usual.parts_of(plan));
        kinds[kind] = std::move(parts);
        return Ok{};
      }
      AUTOPAR_TRY(parts, memory.parts(way.recompute, way.mesh, asked.in_flight, asked.price));
      // Where no op of such a unit would be repeated.
      if (parts == nullptr) {
        AUTOPAR_TRY(plain, memory.parts(Recompute::kNone, way.mesh, asked.in_flight, asked.price));
        parts = std::move(plain);
      }
      kinds[kind] = std::move(parts);
      return Ok{};
    };
    AUTOPAR_RETURN_IF_ERROR(try_in_parallel(threads_of_search(search_.common), kinds.size(), find));
    return kinds;
  };
  AUTOPAR_TRY(smaller, parts_at(mix.smaller));
  Parts larger = smaller;
  if (mix.of_larger > 0) {
    AUTOPAR_TRY(beyond, parts_at(mix.larger));
    larger = std::move(beyond);
  }
  const bool repeats_first = mix.has_two_ways();
  // Units before it take the first of both.
  const double until = first + (repeats_first ? mix.units - mix.of_larger : mix.of_larger);
  const Parts& head = repeats_first ? smaller : larger;
  const Parts& tail = repeats_first ? larger : smaller;
  const auto level_of = [&](const UnitPlan& plan) { return usual.ways()[plan.way].recompute; };
  hinted.recompute = {{"", level_of(mix.smaller)}};
  if (repeats_first) {
    const auto next = static_cast<std::size_t>(std::ceil(until));
    const std::optional<OpId> from = first_own_op(units_.cuts.at(next - 1));
    if (from) hinted.recompute.emplace_back(step_.op(*from).name, level_of(mix.larger));
  }
  hinted.chosen = chosen_of(units_, [head, tail, until](const StepUnits::Place& place) {
    return (static_cast<double>(place.unit) < until ? head : tail)[place.kind].get();
  });
  if (!has_other_kinds(first, mix.units)) return hinted;
  hinted.usual = chosen_of(units_, [this, head, tail, until](const StepUnits::Place& place) {
    if (place.kind != units_.usual) return static_cast<const UnitParts*>(nullptr);
    const Parts& parts = static_cast<double>(place.unit) < until ? head : tail;
    return parts[place.kind].get();
  });
  return hinted;
}

}  // namespace autopar
