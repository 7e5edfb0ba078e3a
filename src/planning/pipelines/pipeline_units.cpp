// What bounds and plans of pipelines are made of: searches of the units of a step.
#include <algorithm>
#include <set>
#include <tuple>

#include "planning/pipelines/pipeline_bound.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "support/parallel.hpp"

namespace autopar {

Result<const PipelineBounds::Least*> PipelineBounds::least_on(const Cluster& stage, BoundOf of) {
  // What templates take says nothing of other plans, and they are quicker than such a bound.
  if (is_templates(search_.options.searcher)) return nullptr;
  const std::pair key(stage.device_count(), of);
  Least* known = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    if (!is_divided_) {
      AUTOPAR_TRY(units, units_of(step_, unit_cuts_, search_.options.updates,
                                  tuning::units::kMostKinds, search_.pins));
      units_ = std::move(units);
      AUTOPAR_TRY(room, ChunkPlans(search_, stage).room());
      room_ = room;
      is_divided_ = true;
    }
    known = &least_[key];
  }
  if (!known->is_searched) {
    auto least = searched(stage, of);
    // A unit may be asked to keep pins on one mesh that chunks keep on several.
    const bool is_of_pins = !least && search_.pins && least.error().code == ErrorCode::kInput;
    if (!least && !is_of_pins) return least.error();
    if (least) *known = std::move(*least);
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

// Parts of numbers of all units, such as those of a norm, that a unit hands on: devices may have
// them in parts of a sum until the last unit.
double numbers_added_up(const Graph& unit) {
  return static_cast<double>(
      std::count_if(unit.outputs.begin(), unit.outputs.end(), [&](ValueId output) {
        const OpId maker = unit.value(output).producer;
        return maker.valid() && unit.value(output).shape.empty() && unit.op(maker).type == "Add" &&
               unit.op(maker).phase == Phase::kUpdate;
      }));
}

// What it takes at most to sum a number over all devices.
Seconds most_of_number(const Cluster& stage, const std::vector<std::string>& meshes) {
  Seconds most = 0;
  for (const std::string& text : meshes) {
    const auto sizes = parse_mesh(text);
    if (!sizes) continue;
    const auto mesh = make_mesh(stage, *sizes);
    if (!mesh) continue;
    Collective sum;
    for (std::size_t axis = 0; axis < mesh->axes.size(); ++axis) {
      sum.axes.push_back(static_cast<int>(axis));
    }
    most = std::max(most, collective_seconds(sum, sizeof(double), *mesh, stage));
  }
  return most;
}

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
  // A chunk does not break kernels between its units.
  const auto bounds = std::make_shared<const ChunkPlans>(search_, stage, kernels_of_step_);
  AUTOPAR_TRY(weighed, weighed_on(stage, *bounds));
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
  const Seconds of_number = sum.most_of_collective(most_of_number(stage, plans->meshes()));
  AUTOPAR_TRY(least_of, least_of_kinds(*bounds, *weighed, of));
  std::vector<Seconds> step, passes, pass;
  for (std::size_t k = 0; k < units_.kinds.size(); ++k) {
    const Graph& graph = units_.kinds[k];
    const Compute compute = compute_of(k);
    // What units have in common each device may do by itself, and what that makes is then there for
    // any layout.
    const Seconds shared = times * compute.shared;
    Seconds host = 0;
    for (const Op& op : graph.ops) {
      host += profile.host_s * most_counted_beside(op, graph, k) *
              static_cast<double>(graph.times(op) * graph.kernel(op).runs);
    }
    const Seconds taken_off = launch + sum.most_of_kernels(shared + compute.shared_update, host) +
                              numbers_added_up(graph) * of_number;
    const LeastTime& of_step = least_of[k].step;
    const Seconds by_compute = sums.step.of_compute * compute.own / devices;
    step.push_back(std::max(by_compute, of_step.bound - taken_off));
    passes.push_back(std::max(times * compute.own / devices, least_of[k].passes - shared));
    pass.push_back(passes.back() / times);
    if (plans->may_choose_meshes() && of_all) {
      if (k == units_.usual) {
        AUTOPAR_TRY(bound, bound_on_memory(bounds, weights, of_step));
        least.bound = std::move(bound);
      }
      if (weights) least.alike.weights = shared_out(*weights, tuning::units::kOnLinks, stage);
      least.open.weights = least.alike.weights;
      const bool hands_on_alike = k == units_.usual && hands_on();
      const HandedOn handed_on = hands_on_alike ? units_.handed_on : HandedOn();
      std::shared_ptr<UnitPaths> paths;
      if (weights) paths = paths_of(plans, *least.alike.weights, k, of_step, handed_on);
      if (k == units_.usual) least.paths = paths;
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
  const Seconds all_compute = narrow_.forward.back() + narrow_.backward.back();
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
  AUTOPAR_RETURN_IF_ERROR(try_in_parallel(threads_of_search(search_.common), searches.size(),
                                          [&](std::size_t s) { return searches[s](); }));
  return least;
}

// An op that units have in common each of them counts. And where numbers of all units are added up,
// such as parts of a norm, units do that in another order than a step: each operand of an Add may
// have to become a partial sum for it, by no more bytes than the Add moves.
double PipelineBounds::most_counted_beside(const Op& op, const Graph& graph,
                                           std::size_t kind) const {
  if (units_.shared_ops[kind].count(op.name) != 0) return 1;
  const bool adds_numbers =
      op.phase == Phase::kUpdate && op.type == "Add" && graph.value(op.outputs[0]).shape.empty();
  return adds_numbers ? 3 : 0;
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
    compute.shared_update += most_counted_beside(step_.ops[o], step_, kind) * seconds_.updating[o];
  }
  return compute;
}

bool PipelineBounds::knows_paths(const Cluster& stage) const {
  const auto known = least_.find({stage.device_count(), BoundOf::kAllUnits});
  return known != least_.end() && known->second.is_searched &&
         (known->second.paths == nullptr || known->second.paths->knows_all());
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
      [this] { return search_.is_over(); }, search_.shelf, threads_of_search(search_.common));
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

}  // namespace autopar
