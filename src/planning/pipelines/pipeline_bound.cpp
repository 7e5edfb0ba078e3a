#include "planning/pipelines/pipeline_bound.hpp"

#include <algorithm>

#include "planning/pipelines/even_cuts.hpp"
#include "planning/pipelines/paired_cuts.hpp"
#include "planning/pipelines/path_bound.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

namespace {

std::shared_ptr<const KernelsByOp> kernels_of(const Graph& step) {
  if (step.kernels.empty()) return nullptr;
  auto kernels = std::make_shared<KernelsByOp>();
  for (const Op& op : step.ops) kernels->emplace(op.name, step.kernel(op));
  return kernels;
}

// For dynamic programming over the ends of each.
bool are_too_many(std::size_t chunks, const CutPlaces& places) {
  const auto end = static_cast<double>(places.end());
  return static_cast<double>(chunks) * end * end > tuning::cuts::kMostPlacings;
}

}  // namespace

PipelineBounds::PipelineBounds(const ChunkSearch& search, const Graph& step,
                               const OpSeconds& seconds)
    : search_(search),
      step_(step),
      seconds_(seconds),
      unit_cuts_(like_cuts(step, search.options.updates)),
      kernels_of_step_(kernels_of(step)),
      decides_(deciding_ops(step, search.options.updates)),
      always_(unit_cuts_),
      narrow_(places_for(1)) {}

void PipelineBounds::add_places(const std::vector<OpId>& cuts) {
  always_.insert(always_.end(), cuts.begin(), cuts.end());
  narrow_ = places_for(1);
}

CutPlaces PipelineBounds::places_for(std::size_t chunks) const {
  CutPlaces places;
  places.ops = cut_places(step_, static_cast<int>(chunks), seconds_, search_.options.updates);
  // What each chunk makes that reads it counts in none of them.
  places.add(always_, unit_cuts_, seconds_, decides_);
  return places;
}

const CutPlaces& PipelineBounds::places_of(const PipelineSchedule& schedule,
                                           const std::vector<OpId>* cuts) const {
  if (cuts != nullptr) return narrow_;
  const std::size_t chunks = schedule.stage_of_chunk.size();
  const std::scoped_lock lock(places_mutex_);
  const auto found = places_.find(chunks);
  return found != places_.end() ? found->second
                                : places_.emplace(chunks, places_for(chunks)).first->second;
}

Result<OpSeconds> PipelineBounds::seconds_on(const Cluster& stage) {
  AUTOPAR_TRY(units, least_on(stage));
  if (units == nullptr) return seconds_;
  // Units of other kinds are taken to wait for collectives as the usual ones do.
  const Seconds of_usual = compute_of(units_.usual).own;
  const auto devices = static_cast<double>(stage.device_count());
  return seconds_of(units, stage, of_usual > 0 ? units->usual_pass * devices / of_usual : 1);
}

Result<OpSeconds> PipelineBounds::least_seconds_on(const Cluster& stage) {
  AUTOPAR_TRY(units, least_on(stage));
  return seconds_of(units, stage, 1);
}

// Ops of each unit take at least `usual` times their compute.
OpSeconds PipelineBounds::seconds_of(const Least* units, const Cluster& stage, double usual) const {
  OpSeconds seconds = seconds_;
  if (units == nullptr) return seconds;
  const std::vector<Seconds>& pass = units->sums.pass.until;
  const auto devices = static_cast<double>(stage.device_count());
  for (std::size_t u = 0; u + 1 < narrow_.unit_ends.size(); ++u) {
    const std::size_t from = narrow_.unit_ends[u], to = narrow_.unit_ends[u + 1];
    const Seconds compute =
        narrow_.forward[to] - narrow_.forward[from] + narrow_.backward[to] - narrow_.backward[from];
    if (compute <= 0) continue;
    const double factor = std::max(usual, (pass[u + 1] - pass[u]) * devices / compute);
    const std::size_t begin = u == 0 ? 0 : unit_cuts_[u - 1].index();
    const std::size_t end = u < unit_cuts_.size() ? unit_cuts_[u].index() : step_.ops.size();
    for (std::size_t o = begin; o < end; ++o) {
      seconds.forward[o] *= factor;
      seconds.backward[o] *= factor;
      seconds.inputs[o] *= factor;
    }
  }
  return seconds;
}

Result<Seconds> PipelineBounds::of(const PipelineSchedule& schedule, const Cluster& stage,
                                   const std::vector<OpId>* cuts, BoundOf of) {
  AUTOPAR_TRY(units, least_on(stage, of));
  std::vector<ChunkMemory> memory;
  if (units != nullptr && units->bound != nullptr) {
    AUTOPAR_TRY(found, memory_of_chunks(*units, *units->bound, schedule));
    memory = std::move(found);
  }
  const Seconds bound = bound_of(units, schedule, stage, cuts, memory);
  // Of whole backward passes and one chunk a stage these say nothing more.
  const bool is_simple =
      schedule.stage_of_chunk.size() == schedule.lines.size() && !is_apart(schedule);
  if (units == nullptr || is_simple || of == BoundOf::kUsualUnits) return bound;
  AUTOPAR_TRY(of_paths, bound_of_paths(*units, schedule, stage, cuts));
  return std::max(bound, of_paths);
}

Result<Seconds> PipelineBounds::bound_of_paths(const Least& units, const PipelineSchedule& schedule,
                                               const Cluster& stage,
                                               const std::vector<OpId>* cuts) const {
  const CutPlaces& places = places_of(schedule, cuts);
  const Parts parts = places.parts(stage);
  const std::size_t end = places.end();
  if (are_too_many(schedule.stage_of_chunk.size(), places)) return Seconds{0};
  std::vector<std::size_t> ends;
  for (std::size_t c = 0; cuts != nullptr && c < cuts->size(); ++c) {
    ends.push_back(narrow_.of((*cuts)[c]));
  }
  if (cuts != nullptr) ends.push_back(end);
  return bound_by_paths(
      schedule,
      [&](std::size_t from, std::size_t to) {
        return LeastOfPart{parts.forward(from, to), parts.backward(from, to),
                           parts.inputs(from, to), parts.least(units.sums.pass, from, to)};
      },
      end, ends);
}

Seconds PipelineBounds::of_even_chunks(const PipelineSchedule& schedule,
                                       const Cluster& stage) const {
  std::size_t actions = 0;
  for (const StepLine& line : schedule.lines) actions += line.size();
  if (actions > tuning::outer::kMostEvenActions) return 0;
  const CutPlaces& places = places_of(schedule, nullptr);
  const Parts parts = places.parts(stage);
  const auto chunks = static_cast<double>(schedule.stage_of_chunk.size());
  ChunkCost cost;
  cost.steady.forward = parts.forward(0, places.end()) / chunks;
  cost.steady.backward = parts.backward(0, places.end()) / chunks;
  cost.steady.input_gradients = parts.inputs(0, places.end()) / chunks;
  cost.steady.weight_gradients = cost.steady.backward - cost.steady.input_gradients;
  const auto times = simulate_schedule(
      schedule, std::vector<ChunkCost>(schedule.stage_of_chunk.size(), std::move(cost)));
  return times ? times->makespan : 0;
}

Seconds PipelineBounds::of_compute(const PipelineSchedule& schedule, const Cluster& stage,
                                   const std::vector<OpId>* cuts) const {
  return bound_of(nullptr, schedule, stage, cuts, {});
}

Seconds PipelineBounds::bound_of(const Least* units, const PipelineSchedule& schedule,
                                 const Cluster& stage, const std::vector<OpId>* cuts,
                                 const std::vector<ChunkMemory>& memory) const {
  const std::vector<ChunkShape> shapes = shapes_of(schedule);
  const std::size_t chunks = shapes.size(), stages = schedule.lines.size();
  const CutPlaces& places = places_of(schedule, cuts);
  const Parts parts = places.parts(stage);
  const std::size_t end = places.end();
  const ChunkSums compute(static_cast<double>(schedule.micro_batches));
  const ChunkBound bound(parts, units != nullptr ? units->sums : compute, schedule, end);
  // What memory adds to a chunk.
  const auto of_memory = [&](std::size_t c, std::size_t from, std::size_t to) {
    if (memory.empty()) return 0.0;
    const auto [a, b] = parts.whole_units(from, to);
    const double usual = b > a ? units->usual[b] - units->usual[a] : 0;
    if (chunks == stages) return memory[c].of_units[static_cast<std::size_t>(usual)];
    return usual * std::max(0.0, memory[c].per_unit) - memory[c].off;
  };
  const Seconds anywhere = bound.anywhere(stages, chunks == stages);
  if (chunks > end || are_too_many(chunks, places)) return anywhere;
  const auto end_of = [&](std::size_t c) {
    return c + 1 == chunks ? end : cuts != nullptr ? narrow_.of((*cuts)[c]) : 0;
  };
  // The least over all ends of the chunks, or with these, of what they take in all, or at most.
  const auto least = [&](const auto& chunk_takes, const auto& with_those_before) {
    std::vector<Seconds> taken(end + 1, kInfinity);
    taken[0] = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
      std::vector<Seconds> next(end + 1, kInfinity);
      const std::size_t given = end_of(c);
      for (std::size_t from = 0; from < end; ++from) {
        if (taken[from] == kInfinity) continue;
        for (std::size_t to = given > 0 ? given : from + 1; to <= (given > 0 ? given : end - 1);
             ++to) {
          if (to <= from) break;
          const Seconds found = with_those_before(taken[from], chunk_takes(c, from, to));
          next[to] = std::min(next[to], found);
        }
      }
      taken = std::move(next);
    }
    return taken[end] == kInfinity ? anywhere : taken[end];
  };
  if (chunks == stages) {
    return least(
        [&](std::size_t c, std::size_t from, std::size_t to) {
          return bound.of_stage(shapes[c], from, to, of_memory(c, from, to));
        },
        [](Seconds a, Seconds b) { return std::max(a, b); });
  }
  const auto sum = [](Seconds a, Seconds b) { return a + b; };
  const auto of_stages = static_cast<double>(stages);
  const Seconds in_turn =
      least([&](std::size_t c, std::size_t from,
                std::size_t to) { return bound.of_several(shapes[c], from, to); },
            sum);
  const Seconds alone = least([&](std::size_t c, std::size_t from,
                                  std::size_t to) { return bound.alone(shapes[c], from, to); },
                              sum);
  const Seconds fitting =
      memory.empty() ? alone
                     : least(
                           [&](std::size_t c, std::size_t from, std::size_t to) {
                             return bound.alone(shapes[c], from, to) + of_memory(c, from, to);
                           },
                           sum);
  const Seconds average = std::max({in_turn, alone, fitting}) / of_stages;
  if (cuts != nullptr || !is_there_and_back(schedule)) return average;
  std::vector<PairedLimit> limits = {
      {0, [&](std::size_t c, std::size_t from,
              std::size_t to) { return bound.of_several(shapes[c], from, to); }},
      {0, [&](std::size_t c, std::size_t from, std::size_t to) {
         return bound.alone(shapes[c], from, to);
       }}};
  if (!memory.empty()) {
    limits.push_back({0, [&](std::size_t c, std::size_t from, std::size_t to) {
                        return bound.alone(shapes[c], from, to) + of_memory(c, from, to);
                      }});
  }
  return longest_of_pairs(stages, end, average, limits);
}

std::vector<std::vector<OpId>> PipelineBounds::cuts_alike(const PipelineSchedule& schedule,
                                                          const std::vector<OpId>& cuts) const {
  const std::size_t stages = schedule.lines.size(), chunks = schedule.stage_of_chunk.size();
  std::vector<std::vector<OpId>> ways;
  if (units_.kinds.empty() || chunks % stages != 0) return ways;
  // How many places behind the begin of its unit a cut lies: of most of them.
  std::map<std::size_t, std::size_t> count_of;
  for (const OpId cut : cuts) {
    const std::size_t place = narrow_.of(cut);
    ++count_of[place -
               *(std::upper_bound(narrow_.unit_ends.begin(), narrow_.unit_ends.end(), place) - 1)];
  }
  const auto most = std::max_element(count_of.begin(), count_of.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  std::vector<std::size_t> ends = {0};  // of parts that are alike
  for (const std::size_t unit : narrow_.unit_ends) {
    const std::size_t place = unit + most->first;
    if (place > 0 && place <= narrow_.ops.size()) ends.push_back(place);
  }
  ends.push_back(narrow_.end());
  // What is before the first of them, and behind the last, goes with these.
  const auto busy = [&](std::size_t i) {
    return narrow_.forward[ends[i + 1]] + narrow_.backward[ends[i + 1]] - narrow_.forward[ends[i]] -
           narrow_.backward[ends[i]];
  };
  if (ends.size() < 4) return ways;
  const Seconds usual = busy(ends.size() / 2) / 2;
  if (busy(0) < usual) ends.erase(ends.begin() + 1);
  if (ends.size() > 3 && busy(ends.size() - 2) < usual) ends.erase(ends.end() - 2);
  for (const std::vector<std::size_t>& way : even_cuts(ends.size() - 1, stages, chunks / stages)) {
    std::vector<OpId> cut;
    for (const std::size_t part : way) cut.push_back(narrow_.ops[ends[part] - 1]);
    ways.push_back(std::move(cut));
  }
  return ways;
}

Result<Seconds> PipelineBounds::of_single(const Cluster& cluster, BoundOf of) {
  AUTOPAR_TRY(units, least_on(cluster, of));
  if (units == nullptr) return of_single_compute(cluster);
  const Seconds step = units->sums.step.until.back();
  if (units->bound == nullptr) return step;
  const auto room = static_cast<double>(room_);
  AUTOPAR_TRY(found, units->bound->price_of_room(1, units->usual.back(), room));
  const Seconds apart = units->usual.back() * (units->usual_step + units->taken_off);
  return step + std::max(0.0, found.bound - apart);
}

Seconds PipelineBounds::of_single_compute(const Cluster& cluster) const {
  return (narrow_.forward.back() + narrow_.backward.back()) * static_cast<double>(step_.passes) /
         static_cast<double>(cluster.device_count());
}

}  // namespace autopar
