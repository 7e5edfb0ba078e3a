#include "cli/pipeline_bound.hpp"

#include <algorithm>
#include <numeric>

#include "cli/paired_cuts.hpp"
#include "cli/pipeline_tuning.hpp"

namespace autopar::cli {

namespace {

// What a schedule says of the passes of a chunk, and of its stage.
struct ChunkShape {
  std::size_t stage = 0;
  bool is_first = false;              // of its stage
  std::int64_t forward_first = 0;     // forward passes before the first backward pass of the stage
  std::int64_t backward_between = 0;  // backward passes between that one and the last forward pass
};

std::vector<ChunkShape> shapes_of(const PipelineSchedule& schedule) {
  std::vector<ChunkShape> shapes(schedule.stage_of_chunk.size());
  std::vector<char> has_chunk(schedule.lines.size());
  for (std::size_t c = 0; c < shapes.size(); ++c) {
    shapes[c].stage = static_cast<std::size_t>(schedule.stage_of_chunk[c]);
    shapes[c].is_first = has_chunk[shapes[c].stage] == 0;
    has_chunk[shapes[c].stage] = 1;
  }
  for (const StepLine& line : schedule.lines) {
    for (const StepAction& action : line) {
      if (action.phase != StepPhase::kForward) break;
      ++shapes[static_cast<std::size_t>(action.chunk)].forward_first;
    }
    std::int64_t backward = 0;
    for (const StepAction& action : line) {
      ChunkShape& of = shapes[static_cast<std::size_t>(action.chunk)];
      if (action.phase == StepPhase::kBackward) ++backward;
      if (action.phase == StepPhase::kForward)
        of.backward_between = std::max<std::int64_t>(0, backward - 1);
    }
  }
  return shapes;
}

// Whether backward passes are in two parts, of which the stage before waits for one.
bool is_apart(const PipelineSchedule& schedule) {
  for (const StepLine& line : schedule.lines) {
    for (const StepAction& action : line) {
      if (action.phase == StepPhase::kWeightGradients) return true;
    }
  }
  return false;
}

// Whether stage s has the s-th chunk, and the s-th from the end.
bool is_there_and_back(const PipelineSchedule& schedule) {
  const std::size_t chunks = schedule.stage_of_chunk.size(), stages = schedule.lines.size();
  if (chunks != 2 * stages) return false;
  for (std::size_t c = 0; c < chunks; ++c) {
    const auto stage = static_cast<std::size_t>(schedule.stage_of_chunk[c]);
    if (stage != std::min(c, chunks - 1 - c)) return false;
  }
  return true;
}

// Least times of what lies between two places.
class Parts {
 public:
  Parts(const std::vector<Seconds>& forward, const std::vector<Seconds>& backward,
        const std::vector<Seconds>& inputs, const std::vector<std::size_t>& unit_ends,
        double devices, double micro_batches)
      : forward_(forward),
        backward_(backward),
        inputs_(inputs),
        unit_ends_(unit_ends),
        devices_(devices),
        micro_batches_(micro_batches) {}

  Seconds forward(std::size_t from, std::size_t to) const {
    return (forward_[to] - forward_[from]) / devices_;
  }
  Seconds backward(std::size_t from, std::size_t to) const {
    return (backward_[to] - backward_[from]) / devices_;
  }
  Seconds inputs(std::size_t from, std::size_t to) const {
    return (inputs_[to] - inputs_[from]) / devices_;
  }
  // The whole units between two places, by their ends; none: first is not before last.
  std::pair<std::size_t, std::size_t> whole_units(std::size_t from, std::size_t to) const {
    const auto first = std::lower_bound(unit_ends_.begin(), unit_ends_.end(), from);
    const auto last = std::upper_bound(unit_ends_.begin(), unit_ends_.end(), to) - 1;
    return {static_cast<std::size_t>(first - unit_ends_.begin()),
            static_cast<std::size_t>(last - unit_ends_.begin())};
  }
  // Whole units as they are given, the rest by its compute. `until`: of the units, null: none are.
  Seconds least(const std::vector<Seconds>* until, bool of_one, std::size_t from,
                std::size_t to) const {
    const double times = of_one ? 1 : micro_batches_;
    const auto compute = [&](std::size_t a, std::size_t b) {
      return times * (forward(a, b) + backward(a, b));
    };
    if (until == nullptr) return compute(from, to);
    const auto [a, b] = whole_units(from, to);
    if (b <= a) return compute(from, to);
    return compute(from, unit_ends_[a]) + ((*until)[b] - (*until)[a]) + compute(unit_ends_[b], to);
  }

 private:
  const std::vector<Seconds>& forward_;
  const std::vector<Seconds>& backward_;
  const std::vector<Seconds>& inputs_;
  const std::vector<std::size_t>& unit_ends_;
  const double devices_, micro_batches_;
};

}  // namespace

PipelineBounds::PipelineBounds(const ChunkSearch& search, const Graph& step,
                               const OpSeconds& seconds)
    : search_(search),
      step_(step),
      seconds_(seconds),
      unit_cuts_(like_cuts(step, search.options.updates)) {
  places_ = good_cuts(step, seconds, search.options.updates);
  places_.insert(places_.end(), unit_cuts_.begin(), unit_cuts_.end());
  std::sort(places_.begin(), places_.end());
  places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
  unit_ends_ = {0};
  for (OpId cut : unit_cuts_) unit_ends_.push_back(place_of(cut));
  unit_ends_.push_back(places_.size() + 1);
  forward_.assign(places_.size() + 2, 0);
  backward_ = inputs_ = forward_;
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const std::size_t after = place_of(OpId(static_cast<std::int64_t>(o))) + 1;
    forward_[after] += seconds.forward[o];
    backward_[after] += seconds.backward[o];
    inputs_[after] += seconds.inputs[o];
  }
  std::partial_sum(forward_.begin(), forward_.end(), forward_.begin());
  std::partial_sum(backward_.begin(), backward_.end(), backward_.begin());
  std::partial_sum(inputs_.begin(), inputs_.end(), inputs_.begin());
}

// The last one that is not behind an op; 0: the begin.
std::size_t PipelineBounds::place_of(OpId op) const {
  return static_cast<std::size_t>(std::upper_bound(places_.begin(), places_.end(), op) -
                                  places_.begin());
}

bool PipelineBounds::covers(const std::vector<OpId>& cuts) const {
  return std::all_of(cuts.begin(), cuts.end(), [&](OpId cut) {
    return std::binary_search(places_.begin(), places_.end(), cut);
  });
}

Result<const PipelineBounds::Least*> PipelineBounds::least_on(const Cluster& stage) {
  // What templates take says nothing of other plans, and they are quicker than such a bound.
  if (search_.options.searcher.rfind("uniform", 0) == 0) return nullptr;
  const auto known = least_.find(stage.device_count());
  if (known == least_.end()) {
    if (units_.cuts.empty()) {
      AUTOPAR_TRY(units,
                  units_of(step_, unit_cuts_, search_.options.updates, tuning::units::kMostKinds));
      units_ = std::move(units);
      AUTOPAR_TRY(room, ChunkPlans(search_, stage).room());
      room_ = room;
    }
    AUTOPAR_TRY(least, searched(stage));
    least_.emplace(stage.device_count(), std::move(least));
  }
  const Least& least = least_.at(stage.device_count());
  return least.step.empty() ? nullptr : &least;
}

namespace {

// So much of the weight goes from where it is to the links, mostly to the outermost one, and to
// what waits at the end.
StreamTimes shared_out(const StreamTimes& weights, double part, const Cluster& stage) {
  StreamTimes links;
  const std::size_t count = std::min<std::size_t>(stage.tiers.size(), kLinks);
  links.tail = tuning::units::kOnTail;
  for (std::size_t l = 0; l < count; ++l) {
    const double others = (1 - tuning::units::kOnTail) * (1 - tuning::units::kOnOutermost);
    links.links[l] = count == 1       ? 1 - tuning::units::kOnTail
                     : l + 1 == count ? (1 - tuning::units::kOnTail) * tuning::units::kOnOutermost
                                      : others / static_cast<double>(count - 1);
  }
  StreamTimes shared = weights;
  const auto to = shared.all();
  const auto from = links.all();
  for (std::size_t s = 0; s < to.size(); ++s) *to[s] = (1 - part) * *to[s] + part * *from[s];
  return shared;
}

}  // namespace

Result<PipelineBounds::Least> PipelineBounds::searched(const Cluster& stage) const {
  Least least;
  if (units_.kinds.empty()) return least;
  // Weights that suit the kind of which there are most, and the same for all: only so do bounds add
  // up.
  const auto plans = std::make_shared<const ChunkPlans>(search_, stage);
  AUTOPAR_TRY(weights, plans->weights_of(units_.kinds[units_.usual]));

  std::optional<StreamTimes> compute;
  if (weights) compute = StreamTimes{.compute = 1};
  // The update of all parameters of a chunk is one launch, which each unit counts.
  const Profile& profile = stage.profile;
  least.launch = profile.launch_s + profile.host_s;
  const auto times = static_cast<double>(step_.passes);
  std::vector<Seconds> step, passes, pass;
  for (std::size_t k = 0; k < units_.kinds.size(); ++k) {
    const Graph& graph = units_.kinds[k];
    const Graph without = without_update(graph);
    AUTOPAR_TRY(of_step, plans->least_time(graph, weights));

    AUTOPAR_TRY(of_compute, plans->least_time(without, compute));
    const Seconds alone = std::max(0.0, of_step.bound - least.launch);
    const Seconds shared = times * of_shared_ops(k);
    step.push_back(std::max(0.0, alone - shared));
    passes.push_back(std::max(0.0, of_compute.bound - shared));
    pass.push_back(passes.back() / times);
    if (plans->is_open()) {
      if (k == units_.usual) {
        AUTOPAR_TRY(memory, memory_of(plans, weights, k, of_step, true));
        least.memory = std::move(memory);
        AUTOPAR_TRY(bound, bound_on_memory(plans, weights, of_step));
        least.bound = std::move(bound);
      }
      if (weights) least.of_plans.weights = shared_out(*weights, tuning::units::kOnLinks, stage);
      AUTOPAR_TRY(memory, memory_of(plans, least.of_plans.weights, k, of_step, !weights));
      least.of_plans.memories.push_back(std::move(memory));
    }
    if (k == units_.usual) least.usual_step = alone;
  }
  least.step = least.passes = least.pass = least.usual = {0};
  for (std::size_t k : units_.kind_of) {
    least.step.push_back(least.step.back() + step[k]);
    least.passes.push_back(least.passes.back() + passes[k]);
    least.pass.push_back(least.pass.back() + pass[k]);
    least.usual.push_back(least.usual.back() + (k == units_.usual ? 1 : 0));
  }
  return least;
}

// Each device may do all of it, and what it makes is then there for any layout.
Seconds PipelineBounds::of_shared_ops(std::size_t kind) const {
  Seconds shared = 0;
  for (std::size_t o = 0; o < step_.ops.size(); ++o) {
    if (units_.shared_ops[kind].count(step_.ops[o].name) == 0) continue;
    shared += seconds_.forward[o] + seconds_.backward[o];
  }
  return shared;
}

Result<std::shared_ptr<UnitMemory>> PipelineBounds::memory_of(
    std::shared_ptr<const ChunkPlans> plans, const std::optional<StreamTimes>& weights,
    std::size_t kind, const LeastTime& least, bool is_bounded) const {
  AUTOPAR_TRY(asked, plans->asked_level());
  std::vector<UnitWay> ways;
  for (const Recompute recompute :
       {Recompute::kNone, Recompute::kCheap, Recompute::kProducts, Recompute::kFull}) {
    if (asked && recompute != *asked) continue;
    for (const auto& [mesh, bound] : least.of_meshes) {
      if (!is_bounded && bound > tuning::units::kFar * least.bound) continue;
      ways.push_back({recompute, mesh, is_bounded ? bound : 0});
    }
  }
  return memory_of_ways(std::move(plans), weights, kind, std::move(ways));
}

std::shared_ptr<UnitMemory> PipelineBounds::memory_of_ways(
    std::shared_ptr<const ChunkPlans> plans, const std::optional<StreamTimes>& weights,
    std::size_t kind, std::vector<UnitWay> ways) const {
  const std::int64_t devices = plans->device_count();
  const auto problem = [plans = std::move(plans), weights](Graph& graph, const UnitWay& way) {
    return plans->problem_of(graph, way, weights);
  };
  return std::make_shared<UnitMemory>(units_.kinds[kind], units_.own, std::move(ways), devices,
                                      problem, [this] { return search_.is_over(); });
}

// Of the usual kind.
Result<std::shared_ptr<UnitBound>> PipelineBounds::bound_on_memory(
    std::shared_ptr<const ChunkPlans> plans, const std::optional<StreamTimes>& weights,
    const LeastTime& least) const {
  std::vector<UnitWay> ways;
  for (const auto& [mesh, bound] : least.of_meshes) ways.push_back({Recompute::kNone, mesh, bound});
  AUTOPAR_TRY(asked, plans->asked_level());
  std::optional<UnitKeeping> keeping;
  if (asked != Recompute::kNone) {
    AUTOPAR_TRY(may_keep,
                plans->keeping_of(units_.kinds[units_.usual], asked.value_or(Recompute::kFull),
                                  weights, units_.shared));
    keeping = std::move(may_keep);
  }
  return std::make_shared<UnitBound>(memory_of_ways(plans, weights, units_.usual, std::move(ways)),
                                     std::move(keeping), [this] { return search_.is_over(); });
}

Result<OpSeconds> PipelineBounds::seconds_on(const Cluster& stage) {
  AUTOPAR_TRY(units, least_on(stage));
  OpSeconds seconds = seconds_;
  if (units == nullptr) return seconds;
  const auto devices = static_cast<double>(stage.device_count());
  for (std::size_t u = 0; u + 1 < unit_ends_.size(); ++u) {
    const std::size_t from = unit_ends_[u], to = unit_ends_[u + 1];
    const Seconds compute = forward_[to] - forward_[from] + backward_[to] - backward_[from];
    if (compute <= 0) continue;
    const double factor = (units->pass[u + 1] - units->pass[u]) * devices / compute;
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
                                   const std::vector<OpId>* cuts) {
  AUTOPAR_TRY(units, least_on(stage));
  std::vector<ChunkMemory> memory;
  if (units != nullptr && units->bound != nullptr) {
    AUTOPAR_TRY(found, memory_of_chunks(*units, *units->bound, schedule));
    memory = std::move(found);
  }
  return bound_of(units, schedule, stage, cuts, memory);
}

Seconds PipelineBounds::of_compute(const PipelineSchedule& schedule, const Cluster& stage,
                                   const std::vector<OpId>* cuts) const {
  return bound_of(nullptr, schedule, stage, cuts, {});
}

namespace {

// What a chunk adds to the time of its stage; where stages have one chunk, that time.
class ChunkBound {
 public:
  using Sums = std::vector<Seconds>;
  ChunkBound(const Parts& parts, const Sums* step, const Sums* passes, const Sums* pass,
             const PipelineSchedule& schedule, std::size_t end)
      : parts_(parts),
        step_(step),
        passes_(passes),
        pass_(pass),
        micro_batches_(static_cast<double>(schedule.micro_batches)),
        is_apart_(is_apart(schedule)),
        all_(is_apart_ ? parts.forward(0, end) : parts.least(pass, true, 0, end)),
        end_(end) {}

  // Of a stage with this chunk alone.
  Seconds of_stage(const ChunkShape& shape, std::size_t from, std::size_t to,
                   Seconds of_memory) const {
    const Seconds back = is_apart_ ? 0 : parts_.backward(0, from);
    const Seconds alone =
        parts_.forward(0, from) + std::max(parts_.least(step_, false, from, to) + of_memory,
                                           parts_.least(passes_, false, from, to) + back);
    if (is_apart_) return std::max(alone, all_ + parts_.inputs(to, end_) + left(shape, from, to));
    return std::max({alone, all_ + left(shape, from, to), all_ + until_last(shape, from, to)});
  }

  // Of a stage with several: without what the first micro-batch takes apart.
  Seconds alone(const ChunkShape& shape, std::size_t from, std::size_t to) const {
    return parts_.least(step_, false, from, to) + (shape.is_first ? parts_.forward(0, from) : 0);
  }

  // From the first backward pass until the last forward pass, and that one's way on and back.
  Seconds until_last(const ChunkShape& shape, std::size_t from, std::size_t to) const {
    const double forward = micro_batches_ - static_cast<double>(shape.forward_first);
    const auto backward = static_cast<double>(shape.backward_between);
    const double both = std::min(forward, backward);
    return both * parts_.least(pass_, true, from, to) +
           (forward - both) * parts_.forward(from, to) +
           (1 + backward - both) * parts_.backward(from, to) + parts_.least(pass_, true, to, end_);
  }

  // Of a stage with several, what the first micro-batch takes apart.
  Seconds left(const ChunkShape& shape, std::size_t from, std::size_t to) const {
    const auto first = static_cast<double>(shape.forward_first);
    const double whole = is_apart_ ? 0 : 1;  // backward passes in `all_`
    const double rest = std::max(0.0, micro_batches_ - std::max(first, whole));
    return rest * parts_.least(pass_, true, from, to) +
           std::max(0.0, micro_batches_ - whole - rest) * parts_.backward(from, to);
  }
  Seconds all() const { return all_; }

 private:
  const Parts& parts_;
  const Sums* const step_;
  const Sums* const passes_;
  const Sums* const pass_;
  const double micro_batches_;
  const bool is_apart_;
  const Seconds all_;  // the first micro-batch, through all chunks and back
  const std::size_t end_;
};

}  // namespace

Seconds PipelineBounds::bound_of(const Least* units, const PipelineSchedule& schedule,
                                 const Cluster& stage, const std::vector<OpId>* cuts,
                                 const std::vector<ChunkMemory>& memory) const {
  const std::vector<ChunkShape> shapes = shapes_of(schedule);
  const std::size_t chunks = shapes.size(), stages = schedule.lines.size();
  const std::size_t end = places_.size() + 1;
  const Parts parts(forward_, backward_, inputs_, unit_ends_,
                    static_cast<double>(stage.device_count()),
                    static_cast<double>(schedule.micro_batches));
  const ChunkBound bound(parts, units != nullptr ? &units->step : nullptr,
                         units != nullptr ? &units->passes : nullptr,
                         units != nullptr ? &units->pass : nullptr, schedule, end);
  // What memory adds to a chunk.
  const auto of_memory = [&](std::size_t c, std::size_t from, std::size_t to) {
    if (memory.empty()) return 0.0;
    const auto [a, b] = parts.whole_units(from, to);
    const double usual = b > a ? units->usual[b] - units->usual[a] : 0;
    if (chunks == stages) return memory[c].of_units[static_cast<std::size_t>(usual)];
    return usual * std::max(0.0, memory[c].per_unit) - memory[c].off;
  };
  // With cuts at any places: all stages alike busy, and a micro-batch that goes through all of
  // them.
  const Seconds anywhere =
      std::max(parts.least(nullptr, false, 0, end) / static_cast<double>(stages),
               is_apart(schedule) ? parts.forward(0, end) + parts.inputs(0, end)
                                  : parts.forward(0, end) + parts.backward(0, end));
  const auto end_of = [&](std::size_t c) {
    return c + 1 == chunks ? end : cuts != nullptr ? place_of((*cuts)[c]) : 0;
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
  if (chunks > end) return anywhere;
  const auto sum = [](Seconds a, Seconds b) { return a + b; };
  const auto of_stages = static_cast<double>(stages);
  const Seconds left = least([&](std::size_t c, std::size_t from,
                                 std::size_t to) { return bound.left(shapes[c], from, to); },
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
  const Seconds average =
      std::max({bound.all() + left / of_stages, alone / of_stages, fitting / of_stages});
  if (cuts != nullptr || !is_there_and_back(schedule)) return average;
  std::vector<PairedLimit> limits = {
      {bound.all(), [&](std::size_t c, std::size_t from,
                        std::size_t to) { return bound.left(shapes[c], from, to); }},
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

Result<Seconds> PipelineBounds::of_single(const Cluster& cluster) {
  AUTOPAR_TRY(units, least_on(cluster));
  if (units == nullptr) return of_single_compute(cluster);
  if (units->bound == nullptr) return units->step.back();
  const auto room = static_cast<double>(room_);
  AUTOPAR_TRY(found, units->bound->price_of_room(1, units->usual.back(), room));
  const Seconds apart = units->usual.back() * (units->usual_step + units->launch);
  return units->step.back() + std::max(0.0, found.bound - apart);
}

Seconds PipelineBounds::of_single_compute(const Cluster& cluster) const {
  return (forward_.back() + backward_.back()) * static_cast<double>(step_.passes) /
         static_cast<double>(cluster.device_count());
}

}  // namespace autopar::cli
