#include "planning/pipelines/pipeline_bound.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "planning/pipelines/even_cuts.hpp"
#include "planning/pipelines/paired_cuts.hpp"
#include "planning/pipelines/path_bound.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "support/parallel.hpp"

namespace autopar {

PipelineBounds::PipelineBounds(const ChunkSearch& search, const Graph& step,
                               const OpSeconds& seconds)
    : search_(search),
      step_(step),
      seconds_(seconds),
      unit_cuts_(like_cuts(step, search.options.updates)),
      most_chunks_(most_good_chunks(step, search.options.updates)) {
  good_.ops = good_cuts(step, seconds, search.options.updates);
  all_.ops = all_cuts(step, search.options.updates);
  add_places(unit_cuts_);
}

void PipelineBounds::add_places(const std::vector<OpId>& cuts) {
  // What each chunk makes that reads it counts in none of them.
  const std::vector<OpId> decides = deciding_ops(step_, search_.options.updates);
  for (CutPlaces* places : {&good_, &all_}) places->add(cuts, unit_cuts_, seconds_, decides);
}

const CutPlaces& PipelineBounds::places_of(const PipelineSchedule& schedule,
                                           const std::vector<OpId>* cuts) const {
  const bool is_cut_anywhere = cuts == nullptr && schedule.stage_of_chunk.size() > most_chunks_;
  return is_cut_anywhere ? all_ : good_;
}

Result<const PipelineBounds::Least*> PipelineBounds::least_on(const Cluster& stage, BoundOf of) {
  // What templates take says nothing of other plans, and they are quicker than such a bound.
  if (search_.options.searcher.rfind("uniform", 0) == 0) return nullptr;
  const std::pair key(stage.device_count(), of);
  Least* known = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_divided_) {
      AUTOPAR_TRY(units,
                  units_of(step_, unit_cuts_, search_.options.updates, tuning::units::kMostKinds));
      units_ = std::move(units);
      AUTOPAR_TRY(room, ChunkPlans(search_, stage).room());
      room_ = room;
      is_divided_ = true;
    }
    known = &least_[key];
  }
  if (!known->is_searched) {
    AUTOPAR_TRY(least, searched(stage, of));
    *known = std::move(least);
    known->is_searched = true;
  }
  return known->usual.empty() ? nullptr : known;
}

// The usual unit.
Result<const WeighedUnit*> PipelineBounds::weighed_on(const Cluster& stage,
                                                      const ChunkPlans& plans) {
  std::optional<WeighedUnit>* known = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    known = &weighed_[stage.device_count()];
  }
  if (!*known) {
    AUTOPAR_TRY(weighed, plans.weights_of(units_.kinds[units_.usual]));
    *known = std::move(weighed);
  }
  return &**known;
}

namespace {

// So much of the weight goes from where it is to the links, mostly to inner ones, and to
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

Result<PipelineBounds::Least> PipelineBounds::searched(const Cluster& stage, BoundOf of) {
  Least least;
  if (units_.kinds.empty()) return least;
  // Weights that suit the kind of which there are most, and the same for all: only so do bounds add
  // up.
  const auto plans = std::make_shared<const ChunkPlans>(search_, stage);
  AUTOPAR_TRY(weighed, weighed_on(stage, *plans));
  const std::optional<StreamTimes>& weights = weighed->weights;
  const bool of_all = of == BoundOf::kAllUnits;
  const StreamSum sum{weights};
  const auto times = static_cast<double>(step_.passes);
  ChunkSums& sums = least.sums = ChunkSums(times);
  sums.step.of_compute = sum.least_of_compute(times, static_cast<double>(step_.copies));
  if (weights) sums.waiting = weights->compute + weights->tail;
  // The update of all parameters of a chunk is one launch, which each unit counts.
  const Profile& profile = stage.profile;
  const Seconds launch = sum.most_of_kernels(profile.launch_s, profile.host_s);
  const auto devices = static_cast<double>(stage.device_count());
  AUTOPAR_TRY(least_of, least_of_kinds(*plans, *weighed, of));
  std::vector<Seconds> step, passes, pass;
  for (std::size_t k = 0; k < units_.kinds.size(); ++k) {
    const Graph& graph = units_.kinds[k];
    const Compute compute = compute_of(k);
    // What units have in common each device may do by itself, and what that makes is then there for
    // any layout.
    const Seconds shared = times * compute.shared;
    Seconds host = 0;
    for (const Op& op : graph.ops) {
      const bool is_shared = units_.shared_ops[k].count(op.name) != 0;
      if (is_shared) host += profile.host_s * static_cast<double>(graph.times(op));
    }
    const Seconds taken_off = launch + sum.most_of_kernels(shared, host);
    const LeastTime& of_step = least_of[k].step;
    const Seconds by_compute = sums.step.of_compute * compute.own / devices;
    step.push_back(std::max(by_compute, of_step.bound - taken_off));
    passes.push_back(std::max(times * compute.own / devices, least_of[k].passes - shared));
    pass.push_back(passes.back() / times);
    if (plans->is_open() && of_all) {
      if (k == units_.usual) {
        AUTOPAR_TRY(bound, bound_on_memory(plans, weights, of_step));
        least.bound = std::move(bound);
      }
      if (weights) least.alike.weights = shared_out(*weights, tuning::units::kOnLinks, stage);
      least.open.weights = least.alike.weights;
      const bool hands_on_alike = k == units_.usual && hands_on();
      const HandedOn handed_on = hands_on_alike ? units_.handed_on : HandedOn();
      std::shared_ptr<UnitPaths> paths;
      if (weights) paths = paths_of(plans, *least.alike.weights, k, of_step, handed_on);
      const auto memory = [&](const HandedOn& ends) {
        return memory_of(plans, least.alike.weights, k, of_step, ends, paths);
      };
      AUTOPAR_TRY(alike, memory(handed_on));
      least.alike.memories.push_back(alike);
      if (hands_on_alike) {
        AUTOPAR_TRY(open, memory({}));
        alike = std::move(open);
      }
      least.open.memories.push_back(std::move(alike));
    }
    if (k != units_.usual) continue;
    std::tie(least.usual_step, least.usual_pass) = std::pair(step.back(), pass.back());
    least.taken_off = taken_off;
  }
  const auto until = [&](const std::vector<Seconds>& of_kinds) {
    std::vector<Seconds> ends = {0};
    for (const std::size_t k : units_.kind_of) ends.push_back(ends.back() + of_kinds[k]);
    return ends;
  };
  sums.step.until = until(step);
  sums.passes.until = until(passes);
  sums.pass.until = until(pass);
  least.usual = {0};
  for (const std::size_t k : units_.kind_of) {
    least.usual.push_back(least.usual.back() + (k == units_.usual ? 1 : 0));
  }
  return least;
}

// Those of usual units alone, or of all that are not small. Plans without stages ask for nothing
// but whole steps.
Result<std::vector<PipelineBounds::LeastOfKind>> PipelineBounds::least_of_kinds(
    const ChunkPlans& plans, const WeighedUnit& weighed, BoundOf of) const {
  std::vector<LeastOfKind> least(units_.kinds.size());
  least[units_.usual].step = weighed.least;
  if (of == BoundOf::kUsualUnits) return least;
  const bool is_single = plans.device_count() == search_.whole.cluster.device_count();
  const Seconds all_compute = good_.forward.back() + good_.backward.back();
  std::optional<StreamTimes> only_compute;
  if (weighed.weights) only_compute = StreamTimes{.compute = 1};
  std::vector<std::function<Status()>> searches;
  for (std::size_t k = 0; k < units_.kinds.size(); ++k) {
    if (compute_of(k).own <= tuning::units::kSmall * all_compute) continue;
    const Graph& graph = units_.kinds[k];
    LeastOfKind& found = least[k];
    if (k != units_.usual) {
      searches.emplace_back([&]() -> Status {
        AUTOPAR_TRY(step, plans.least_time(graph, weighed.weights));
        found.step = std::move(step);
        return Ok{};
      });
    }
    if (is_single) continue;
    searches.emplace_back([&]() -> Status {
      AUTOPAR_TRY(passes, plans.least_time(without_update(graph), only_compute));
      found.passes = passes.bound;
      return Ok{};
    });
  }
  std::vector<Status> ends(searches.size(), Status(Ok{}));
  in_parallel(threads_of_search(search_.common), searches.size(),
              [&](std::size_t s) { ends[s] = searches[s](); });
  for (const Status& end : ends) AUTOPAR_RETURN_IF_ERROR(end);
  return least;
}

PipelineBounds::Compute PipelineBounds::compute_of(std::size_t kind) const {
  std::set<std::string> names;
  for (const Op& op : units_.kinds[kind].ops) names.insert(op.name);
  Compute compute;
  for (std::size_t o = 0; o < step_.ops.size(); ++o) {
    const std::string& name = step_.ops[o].name;
    if (names.count(name) == 0) continue;
    const bool is_shared = units_.shared_ops[kind].count(name) != 0;
    (is_shared ? compute.shared : compute.own) += seconds_.forward[o] + seconds_.backward[o];
  }
  return compute;
}

// Meshes whose bound is near the least.
std::vector<std::string> PipelineBounds::near_meshes(const LeastTime& least) {
  std::vector<std::string> meshes;
  for (const auto& [mesh, bound] : least.of_meshes) {
    if (bound <= tuning::units::kFar * least.bound) meshes.push_back(mesh);
  }
  return meshes;
}

std::shared_ptr<UnitPaths> PipelineBounds::paths_of(std::shared_ptr<const ChunkPlans> plans,
                                                    const StreamTimes& weights, std::size_t kind,
                                                    const LeastTime& least,
                                                    const HandedOn& handed_on) const {
  std::map<std::string, Seconds> bounds(least.of_meshes.begin(), least.of_meshes.end());
  const auto search = [plans, weights, &graph = units_.kinds[kind], bounds = std::move(bounds),
                       handed_on](const std::string& mesh, Seconds known) {
    return plans->prices_by_paths(graph, mesh, weights, handed_on, bounds.at(mesh), known);
  };
  return std::make_shared<UnitPaths>(near_meshes(least), search, threads_of_search(search_.common));
}

Result<std::shared_ptr<UnitMemory>> PipelineBounds::memory_of(
    std::shared_ptr<const ChunkPlans> plans, const std::optional<StreamTimes>& weights,
    std::size_t kind, const LeastTime& least, const HandedOn& handed_on,
    const std::shared_ptr<UnitPaths>& paths) const {
  AUTOPAR_TRY(asked, plans->asked_level());
  const std::map<std::string, Seconds> bounds(least.of_meshes.begin(), least.of_meshes.end());
  std::vector<UnitWay> ways;
  for (const Recompute recompute :
       {Recompute::kNone, Recompute::kCheap, Recompute::kProducts, Recompute::kFull}) {
    if (asked && recompute != *asked) continue;
    for (const std::string& mesh : near_meshes(least)) {
      ways.push_back({recompute, mesh, weights ? 0 : bounds.at(mesh), weights.has_value()});
    }
  }
  const auto problem = [plans, weights, paths, handed_on](
                           Graph& graph,
                           const UnitWay& way) -> Result<std::optional<PricedProblem>> {
    if (!way.by_paths) return plans->problem_of(graph, way, weights, nullptr, handed_on);
    AUTOPAR_TRY(prices, paths->of(way.mesh));
    const OpPrices* of_ops = prices->of_ops.empty() ? nullptr : &prices->of_ops;
    return plans->problem_of(graph, way, weights, of_ops, handed_on);
  };
  return memory_of_ways(problem, plans->device_count(), kind, std::move(ways));
}

std::shared_ptr<UnitMemory> PipelineBounds::memory_of_ways(UnitMemory::Problems problems,
                                                           std::int64_t devices, std::size_t kind,
                                                           std::vector<UnitWay> ways) const {
  return std::make_shared<UnitMemory>(
      units_.kinds[kind], units_.own, units_.shared, std::move(ways), devices, std::move(problems),
      [this] { return search_.is_over(); }, threads_of_search(search_.common));
}

// Of the usual kind.
Result<std::shared_ptr<UnitBound>> PipelineBounds::bound_on_memory(
    std::shared_ptr<const ChunkPlans> plans, const std::optional<StreamTimes>& weights,
    const LeastTime& least) const {
  std::vector<UnitWay> ways;
  for (const auto& [mesh, bound] : least.of_meshes)
    ways.push_back({Recompute::kNone, mesh, bound, false});
  AUTOPAR_TRY(asked, plans->asked_level());
  std::optional<UnitKeeping> keeping;
  if (asked != Recompute::kNone) {
    AUTOPAR_TRY(may_keep,
                plans->keeping_of(units_.kinds[units_.usual], asked.value_or(Recompute::kFull),
                                  weights, units_.shared));
    keeping = std::move(may_keep);
  }
  const auto problem = [plans, weights](Graph& graph, const UnitWay& way) {
    return plans->problem_of(graph, way, weights);
  };
  return std::make_shared<UnitBound>(
      memory_of_ways(problem, plans->device_count(), units_.usual, std::move(ways)),
      std::move(keeping), [this] { return search_.is_over(); });
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
  for (std::size_t u = 0; u + 1 < good_.unit_ends.size(); ++u) {
    const std::size_t from = good_.unit_ends[u], to = good_.unit_ends[u + 1];
    const Seconds compute =
        good_.forward[to] - good_.forward[from] + good_.backward[to] - good_.backward[from];
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

// For dynamic programming over the ends of each.
bool PipelineBounds::are_too_many(std::size_t chunks, const CutPlaces& places) const {
  const auto end = static_cast<double>(places.end());
  return &places == &all_ && static_cast<double>(chunks) * end * end > tuning::cuts::kMostPlacings;
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
    ends.push_back(good_.of((*cuts)[c]));
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
    return c + 1 == chunks ? end : cuts != nullptr ? good_.of((*cuts)[c]) : 0;
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
    const std::size_t place = good_.of(cut);
    ++count_of[place -
               *(std::upper_bound(good_.unit_ends.begin(), good_.unit_ends.end(), place) - 1)];
  }
  const auto most = std::max_element(count_of.begin(), count_of.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  std::vector<std::size_t> ends = {0};  // of parts that are alike
  for (const std::size_t unit : good_.unit_ends) {
    const std::size_t place = unit + most->first;
    if (place > 0 && place <= good_.ops.size()) ends.push_back(place);
  }
  ends.push_back(good_.end());
  // What is before the first of them, and behind the last, goes with these.
  const auto busy = [&](std::size_t i) {
    return good_.forward[ends[i + 1]] + good_.backward[ends[i + 1]] - good_.forward[ends[i]] -
           good_.backward[ends[i]];
  };
  if (ends.size() < 4) return ways;
  const Seconds usual = busy(ends.size() / 2) / 2;
  if (busy(0) < usual) ends.erase(ends.begin() + 1);
  if (ends.size() > 3 && busy(ends.size() - 2) < usual) ends.erase(ends.end() - 2);
  for (const std::vector<std::size_t>& way : even_cuts(ends.size() - 1, stages, chunks / stages)) {
    std::vector<OpId> cut;
    for (const std::size_t part : way) cut.push_back(good_.ops[ends[part] - 1]);
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
  return (good_.forward.back() + good_.backward.back()) * static_cast<double>(step_.passes) /
         static_cast<double>(cluster.device_count());
}

}  // namespace autopar
