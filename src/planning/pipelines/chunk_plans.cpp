#include "planning/pipelines/chunk_plans.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "autopar/kernels.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/chunk_bound.hpp"
#include "planning/pipelines/chunk_cost.hpp"
#include "planning/pipelines/chunk_pins.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/room.hpp"
#include "planning/pipelines/stage_memory.hpp"
#include "search/balanced_weights.hpp"
#include "support/parallel.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

using namespace tuning::chunks;
using tuning::units::kWeightings;

bool ChunkSearch::is_over() const {
  return seconds_since(begin) >= options.time_limit || interrupt_requested().load();
}

Inputs without_graph(const Inputs& whole, Cluster stage) {
  Inputs inputs = whole;
  inputs.model.graph = Graph();
  inputs.rules = GraphRules();
  inputs.training_bytes.clear();
  inputs.cluster = std::move(stage);
  return inputs;
}

std::vector<std::string> first_and_last(const Graph& graph) {
  std::vector<std::string> found;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward) continue;
    if (found.empty()) found = {op.name, op.name};
    found[1] = op.name;
  }
  return found;
}

namespace {

bool has_pins(const ChunkSearch& search) {
  return search.pins && !(search.pins->pins.ops.empty() && search.pins->pins.values.empty());
}

}  // namespace

ChunkPlans::ChunkPlans(const ChunkSearch& search, Cluster stage,
                       std::shared_ptr<const KernelsByOp> kernels_of_step)
    : search_(search), options_(search.options), stage_(search.bare), is_pinned_(has_pins(search)) {
  stage_.cluster = std::move(stage);
  stage_.kernels_of_step = std::move(kernels_of_step);
  // Plans without stages are one program.
  options_.phases_apart = device_count() != search.whole.cluster.device_count();
}

Result<std::vector<ChunkPlan>> ChunkPlans::of(std::vector<Chunk> chunks, PipelineSchedule& schedule,
                                              const std::vector<ChunkHint>& hints, Seconds cutoff,
                                              bool may_join, const MayGain& may_gain) {
  cutoff_ = cutoff;
  not_on_.clear();
  if (!search_.pins) return planned_once(std::move(chunks), schedule, hints, may_join, may_gain);
  auto plans = planned_once(chunks, schedule, hints, may_join, may_gain);
  while (!plans && leaves_out_mesh()) {
    plans = planned_once(chunks, schedule, hints, may_join, may_gain);
  }
  return plans;
}

bool ChunkPlans::leaves_out_mesh() {
  return refused_ && not_on_[refused_->first].insert(refused_->second).second;
}

Result<std::vector<ChunkPlan>> ChunkPlans::planned_once(std::vector<Chunk> chunks,
                                                        PipelineSchedule& schedule,
                                                        const std::vector<ChunkHint>& hints,
                                                        bool may_join, const MayGain& may_gain) {
  refused_.reset();
  std::vector<ChunkPlan> plans;
  std::map<std::int64_t, std::vector<std::size_t>> of_stage;
  const std::vector<std::int64_t>& stage_of_chunk = schedule.stage_of_chunk;
  ++cut_;
  forget_plans();
  longest_ = 0;
  std::vector<std::shared_ptr<const Inputs>> inputs(chunks.size());
  const auto asked_of = [&](std::size_t c) -> Result<AskedChunk> {
    if (inputs[c] == nullptr) {
      AUTOPAR_TRY(own, inputs_of(std::move(chunks[c].graph)));
      inputs[c] = std::make_shared<const Inputs>(std::move(own));
    }
    const std::vector<std::size_t>& beside = of_stage[stage_of_chunk[c]];
    const std::string mesh = beside.empty() ? "" : mesh_of(*plans[beside.front()].planned);
    AskedChunk asked{inputs[c], mesh, 0, hints[c], c};
    if (mesh.empty()) asked.not_on = not_on_[stage_of_chunk[c]];
    return asked;
  };
  std::optional<AskedChunk> next;  // planned beside the one before it
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    AUTOPAR_TRY(asked, next ? std::move(*next) : asked_of(c));
    next.reset();
    const bool has_next = c + 1 < chunks.size() && stage_of_chunk[c] != stage_of_chunk[c + 1];
    if (has_next && !asked.of_parts && is_new_of_parts(asked)) {
      AUTOPAR_TRY(behind, asked_of(c + 1));
      if (is_new_of_parts(behind) && !are_alike(asked, behind.mesh, behind)) {
        next = std::move(behind);
        AUTOPAR_RETURN_IF_ERROR(plan_of_parts({&asked, &*next}));
      }
    }
    ChunkPlan found;
    found.reduce_ops = std::move(chunks[c].reduce_ops);
    found.first_and_last = first_and_last(asked.inputs->model.graph);
    found.in_flight = asked.inputs->model.graph.in_flight;
    const std::string of_stage_mesh = asked.mesh;
    if (const Status planned = plan(std::move(asked), found); !planned.ok()) {
      Error error = planned.error();
      if (error.code == ErrorCode::kInput && !of_stage_mesh.empty()) {
        refused_ = std::pair(stage_of_chunk[c], of_stage_mesh);
      }
      error.message = "stage " + std::to_string(stage_of_chunk[c]) + " (" +
                      found.first_and_last.front() + " to " + found.first_and_last.back() +
                      "): " + error.message;
      return error;
    }
    longest_ = std::max(longest_, found.planned->outcome.cost.time());
    of_stage[stage_of_chunk[c]].push_back(c);
    plans.push_back(std::move(found));
    if (!may_gain || plans.size() == chunks.size()) continue;
    AUTOPAR_TRY(goes_on, may_gain(plans));
    if (!goes_on) return infeasible_error("no plan that is faster");
  }
  PipelineSchedule shared = schedule;
  if (may_join) join_backward(shared, [](std::size_t) { return true; });
  for (const auto& [stage, members] : of_stage) {
    const StageChunks sharing{members, shared, stage, inputs, hints, plans};
    AUTOPAR_TRY(all, room());
    AUTOPAR_RETURN_IF_ERROR(share_memory(sharing, all));
    if (members.size() > 1) AUTOPAR_RETURN_IF_ERROR(use_what_is_left(sharing));
    AUTOPAR_RETURN_IF_ERROR(leave_room(sharing));
    if (may_join) AUTOPAR_RETURN_IF_ERROR(join_what_does_not_fit(sharing, schedule));
  }
  return plans;
}

void ChunkPlans::forget_plans() {
  for (Known& known : known_) keep_layouts_alone(known);
}

// What planned_like() and are_alike() read; the rest of a plan is three times as large.
void ChunkPlans::keep_layouts_alone(Known& known) {
  if (!known.planned->request) return;
  const auto graph_alone = [](const Inputs& inputs) {
    auto bare = std::make_unique<Inputs>();
    bare->model.graph = inputs.model.graph;
    bare->recompute = inputs.recompute;
    return bare;
  };
  SearchOutcome outcome = known.planned->outcome;
  outcome.cost = {};
  known.asked.inputs = graph_alone(*known.asked.inputs);
  known.asked.of_parts.reset();
  known.planned = std::make_shared<const Planned>(
      Planned{graph_alone(*known.planned->inputs), std::nullopt, std::move(outcome)});
}

std::string ChunkPlans::mesh_of(const Planned& planned) {
  return to_text(planned.outcome.strategy.mesh);
}

bool ChunkPlans::are_alike(const AskedChunk& known, const std::string& mesh,
                           const AskedChunk& asked) const {
  const Graph& graph = asked.inputs->model.graph;
  const Graph& other = known.inputs->model.graph;
  // With others in flight it may have room for a faster plan.
  const bool is_own =
      asked.hint.parts && !asked.hint.is_fastest && other.in_flight != graph.in_flight;
  // Of one micro-batch at a time ops are repeated otherwise (recompute.hpp).
  const bool is_other = (other.in_flight > 1) != (graph.in_flight > 1);
  if (is_own || is_other || (!asked.mesh.empty() && asked.mesh != mesh)) return false;
  if (known.beside != asked.beside || known.hint.ends != asked.hint.ends) return false;
  const auto values = same_values(other, graph);
  return values && (!search_.pins || are_pinned_alike(*search_.pins, other, graph, *values));
}

bool ChunkPlans::is_new_of_parts(const AskedChunk& asked) const {
  return is_of_parts(asked) && std::none_of(known_.begin(), known_.end(), [&](const Known& known) {
           return are_alike(known.asked, mesh_of(*known.planned), asked);
         });
}

Status ChunkPlans::plan(AskedChunk asked, ChunkPlan& found) {
  const Graph& graph = asked.inputs->model.graph;
  for (Known& known : known_) {
    const std::string mesh = mesh_of(*known.planned);
    if (asked.not_on.count(mesh) != 0 || !are_alike(known.asked, mesh, asked)) continue;
    AUTOPAR_TRY(common, options_of(mesh, asked.beside));
    AUTOPAR_TRY(planned, planned_like(std::make_unique<Inputs>(*asked.inputs), *known.planned,
                                      options_, pins_of(graph), common));
    const bool fits = planned.outcome.cost.memory.total <= plan_limit(*planned.request);
    if (!fits && graph.in_flight > known.asked.inputs->model.graph.in_flight) continue;
    found.alike = known.cut == cut_ ? static_cast<int>(known.chunk) : -1;
    if (known.cut != cut_) std::tie(known.cut, known.chunk) = std::tuple(cut_, asked.chunk);
    found.planned = std::make_shared<const Planned>(std::move(planned));
    found.bytes = known.bytes;
    return Ok{};
  }
  AUTOPAR_TRY(planned, searched(asked));
  found.alike = -1;
  found.planned = planned;
  found.bytes = std::make_shared<KnownChunkBytes>();
  known_.push_back({cut_, asked.chunk, std::move(asked), std::move(planned), found.bytes});
  return Ok{};
}

Result<std::optional<ChunkPlan>> ChunkPlans::with_sources(
    const ChunkPlan& chunk, const std::map<ValueId, Spec>& sources) const {
  const Planned& planned = *chunk.planned;
  auto inputs = std::make_unique<Inputs>(*planned.inputs);
  AUTOPAR_TRY(common, options_of(mesh_of(planned), 0));
  AUTOPAR_TRY(request, request_of(*inputs, pins_of(inputs->model.graph), options_, common));
  request.memory_limit = planned.request->memory_limit;
  SearchOutcome outcome = planned.outcome;
  for (const auto& [id, spec] : sources) outcome.strategy.values[id.index()].spec = spec;
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, outcome.strategy.mesh));
  AUTOPAR_TRY(cost, evaluate(request, outcome.strategy, *model));
  if (cost.memory.total > plan_limit(request)) return std::optional<ChunkPlan>();
  outcome.cost = std::move(cost);
  return std::optional(
      chunk.planned_as({std::move(inputs), std::move(request), std::move(outcome)}));
}

bool ChunkPlans::may_choose_meshes() const {
  return !is_pinned_ && only_on_.empty() && !has_given_meshes();
}

bool ChunkPlans::has_given_meshes() const {
  const bool has_axes = search_.pins && !search_.pins->mesh.empty();
  return has_axes || !search_.common.mesh.empty() || options_.max_axes != 0 ||
         is_templates(options_.searcher);
}

void ChunkPlans::set_meshes(PlanOptions& options) const {
  if (!only_on_.empty()) options.meshes = only_on_;
  if (!only_on_.empty() || has_given_meshes()) return;
  (is_pinned_ ? options.more_meshes : options.meshes) = meshes();
}

bool ChunkPlans::is_of_parts(const AskedChunk& asked) const {
  // Plans of units are those of the exact search.
  const bool is_exact = options_.searcher == "auto" || options_.searcher == "dp";
  return asked.hint.parts && (asked.hint.is_template || (may_choose_meshes() && is_exact));
}

Result<std::optional<Planned>> ChunkPlans::of_units(std::shared_ptr<const Inputs> step,
                                                    const ChunkHint& hint) {
  AskedChunk asked{std::move(step), "", 0, hint, 0};
  if (!is_of_parts(asked)) return std::optional<Planned>();
  AUTOPAR_RETURN_IF_ERROR(plan_of_parts({&asked}));
  if (*asked.of_parts == nullptr) return std::optional<Planned>();
  Planned first = std::move(**asked.of_parts);
  const Seconds ample = seconds_within(first, 2 * first.outcome.cost.most_held());
  if (first.outcome.cost.time() <= (1 + kMuchWaited) * ample)
    return std::optional(std::move(first));
  // As in leave_room().
  AUTOPAR_TRY(all, room());
  const Bytes held = first.outcome.cost.memory.total;
  AskedChunk less{asked.inputs, mesh_of(first), all - held + std::min(held, share_of(all, kLeft)),
                  hint, 0};
  AUTOPAR_RETURN_IF_ERROR(plan_of_parts({&less}));
  if (*less.of_parts == nullptr) return std::optional(std::move(first));
  Planned& second = **less.of_parts;
  second.request->memory_limit = first.request->memory_limit;
  AUTOPAR_TRY(model, make_cost_model(second.request->cost_model, second.request->cluster,
                                     second.outcome.strategy.mesh));
  AUTOPAR_TRY(cost, evaluate(*second.request, second.outcome.strategy, *model));
  second.outcome.cost = std::move(cost);
  const bool is_faster = second.outcome.cost.time() < first.outcome.cost.time();
  return std::optional(std::move(is_faster ? second : first));
}

// Unless something is said about meshes, over those of two axes, of data and of tensor parallelism:
// all of them for the first chunks, the best of these for the others.
Result<std::shared_ptr<const Planned>> ChunkPlans::searched(AskedChunk& asked) {
  if (is_of_parts(asked)) {
    if (!asked.of_parts) AUTOPAR_RETURN_IF_ERROR(plan_of_parts({&asked}));
    const std::shared_ptr<const Planned> found = std::move(*asked.of_parts);
    if (found != nullptr) {
      const Seconds time = found->outcome.cost.time();
      const bool is_misled = asked.slower > kMisled && !asked.hint.is_template;
      if (is_misled && asked.inputs->model.graph.ops.size() <= kSmallStep) {
        auto whole = searched_on(asked, asked.mesh.empty() ? meshes() : std::vector{asked.mesh},
                                 std::min(cutoff_, time));
        if (whole || whole.error().code != ErrorCode::kInfeasible) return whole;
      }
      if (time < cutoff_) return found;
      return infeasible_error("no plan that is faster");
    }
    if (asked.hint.is_template) {
      AUTOPAR_TRY(all, room());
      return infeasible_error("the template takes " + format_bytes(asked.least_bytes) +
                              ", and there are " +
                              format_bytes(static_cast<double>(all - asked.beside)));
    }
    auto whole = searched_on(asked, {asked.mesh.empty() ? asked.hint.mesh : asked.mesh}, cutoff_);
    if (whole || whole.error().code != ErrorCode::kInfeasible || cutoff_ < kInfinity) return whole;
  }
  if (!asked.mesh.empty() || !may_choose_meshes()) return searched_on(asked, {}, cutoff_);
  if (searched_ >= kSearchedOnAll) {
    auto found = searched_on(asked, best_meshes_, cutoff_);
    if (found || found.error().code != ErrorCode::kInfeasible) return found;
  }
  auto found = searched_on(asked, meshes(), cutoff_);
  if (!found) return found;
  ++searched_;
  std::vector<std::pair<Seconds, std::string>> order;
  for (const MeshTrial& trial : (*found)->outcome.trials) {
    const Seconds time =
        trial.end == TrialEnd::kPlan ? trial.cost : tuning::chunks::kFar * trial.lower_bound;
    const bool is_known = trial.end == TrialEnd::kPlan || trial.end == TrialEnd::kPruned;
    if (is_known) order.emplace_back(time, to_text(trial.mesh));
  }
  std::sort(order.begin(), order.end());
  best_meshes_ = {mesh_of(**found)};
  for (const auto& [time, mesh] : order) {
    const bool is_new = mesh != best_meshes_.front();
    if (is_new && best_meshes_.size() < kMeshesOfOthers) best_meshes_.push_back(mesh);
  }
  return found;
}

Status ChunkPlans::plan_of_parts(const std::vector<AskedChunk*>& asked) {
  AUTOPAR_TRY(all, room());
  std::vector<std::unique_ptr<ChunkOfParts>> chunks;
  for (const AskedChunk* one : asked) {
    const double limit = one->beside > 0 ? static_cast<double>(all - one->beside) : one->hint.room;
    const auto plans = [this, one](const HintedParts& parts, PartsRequests& requests) {
      return of_these(*one, parts, requests);
    };
    chunks.push_back(std::make_unique<ChunkOfParts>(*one, limit, longest_, units_, plans));
  }
  std::vector<ChunkOfParts*> open;
  for (const auto& chunk : chunks) open.push_back(chunk.get());
  while (!open.empty()) {
    std::vector<ChunkOfParts*> asking;
    for (ChunkOfParts* chunk : open) {
      if (chunk->has_plan() && search_.is_over()) continue;
      AUTOPAR_TRY(goes_on, chunk->ask());
      if (goes_on) asking.push_back(chunk);
    }
    AUTOPAR_RETURN_IF_ERROR(try_in_parallel(threads_of_search(search_.common), asking.size(),
                                            [&](std::size_t i) { return asking[i]->plan(); }));
    for (ChunkOfParts* chunk : asking) chunk->take();
    open = std::move(asking);
  }
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    asked[i]->of_parts = chunks[i]->best();
    asked[i]->slower = chunks[i]->slower();
    asked[i]->least_bytes = chunks[i]->least_bytes();
  }
  return Ok{};
}

// Without a plan where nothing fits.
Result<PartsPlan> ChunkPlans::of_these(const AskedChunk& asked, const HintedParts& parts,
                                       PartsRequests& requests) const {
  const auto [known, is_new] = requests.try_emplace({parts.recompute, parts.mesh});
  if (is_new) {
    AUTOPAR_TRY(common, options_of(parts.mesh, asked.beside));
    common.mesh.clear();
    PlanOptions options = options_;
    options.training.micro_batches = std::to_string(asked.inputs->model.graph.passes);
    auto inputs = std::make_unique<Inputs>(*asked.inputs);
    const auto pins = pins_of(inputs->model.graph);
    AUTOPAR_TRY(levels, levels_in(inputs->model.graph, parts.recompute));
    bool repeated = levels.repeat_nothing() || parts.wanted;
    if (!levels.repeat_nothing()) {
      AUTOPAR_TRY(some, repeat_ops(*inputs, levels));
      repeated = repeated || some;
    }
    if (repeated) {
      AUTOPAR_TRY(made, parts_request(std::move(inputs), options, pins, common, parts.mesh));
      known->second = std::make_unique<PartsRequest>(std::move(made));
    }
  }
  if (known->second == nullptr) return PartsPlan{{}, kInfinity};
  AUTOPAR_TRY(found, autopar::plan_of_parts(*known->second, parts.weights, parts.chosen,
                                            kPartsEffort, parts.wanted ? &*parts.wanted : nullptr,
                                            parts.usual ? &*parts.usual : nullptr));
  logging::debug(
      "chunk of {} ops from its units, {} in flight, mesh {}, recompute {}, {} of {} take the "
      "larger plan: {}, {}; its units {}, {}",
      asked.inputs->model.graph.ops.size(), asked.inputs->model.graph.in_flight, parts.mesh,
      to_text(parts.recompute), parts.mix.of_larger, parts.mix.units,
      found.outcome ? format_seconds(found.outcome->cost.time()) : "none",
      format_bytes(found.least_bytes), format_seconds(parts.mix.seconds),
      format_bytes(parts.mix.bytes));
  return std::move(found);
}

Result<std::shared_ptr<const Planned>> ChunkPlans::searched_on(const AskedChunk& asked,
                                                               std::vector<std::string> meshes,
                                                               Seconds cutoff) const {
  AUTOPAR_TRY(common, options_of(asked.mesh, asked.beside));
  const Graph& graph = asked.inputs->model.graph;
  PlanOptions options = options_;
  options.training.micro_batches = std::to_string(graph.passes);
  if (asked.mesh.empty() && meshes.empty()) set_meshes(options);
  if (!meshes.empty()) options.meshes = std::move(meshes);
  options.left_out_meshes = asked.not_on;
  const double part = static_cast<double>(graph.ops.size()) / kOpsOfEffort;
  options.effort *= tuning::chunks::kEffort * std::clamp(part, kLeastEffort, 1.0);
  // Chunks are small enough for it.
  if (options.searcher == "auto") options.searcher = "dp";
  AUTOPAR_TRY(planned,
              best_of_forms(std::make_unique<Inputs>(*asked.inputs), search_.given, options,
                            pins_of(graph), common, search_.begin, search_.clock, {cutoff, kGap}));
  return std::make_shared<const Planned>(std::move(planned));
}

Result<LeastTime> ChunkPlans::least_time(const Graph& graph,
                                         const std::optional<StreamTimes>& weights) const {
  AUTOPAR_TRY(inputs, inputs_of(graph));
  PlanOptions options = options_;
  set_meshes(options);
  auto least = autopar::least_time(inputs, options, pins_of(graph), search_.common, weights);
  if (least) {
    logging::debug("a unit of {} ops: no plan takes less than {}", graph.ops.size(),
                   format_seconds(least->bound));
  }
  return least;
}

Result<WeighedUnit> ChunkPlans::weights_of(const Graph& graph) const {
  AUTOPAR_TRY(first, least_time(graph, {}));
  WeighedUnit best{{}, first};
  if (!first.busy) return best;
  std::vector<StreamTimes> known{*first.busy};
  StreamTimes weights = first.busy->sharp_weights();
  for (int round = 0; round < kWeightings; ++round) {
    AUTOPAR_TRY(least, least_time(graph, weights));
    if (least.busy) known.push_back(*least.busy);
    const bool is_better = round == 0 || least.bound > best.least.bound;
    if (is_better) best = {weights, std::move(least)};
    const auto next = weights_of_more(known, best.least.bound);
    if (!next) break;
    weights = *next;
  }
  return best;
}

Result<std::optional<PricedProblem>> ChunkPlans::problem_of(
    Graph& graph, const UnitWay& way, const std::optional<StreamTimes>& weights,
    const OpPrices* prices_of_ops, const HandedOn& handed_on) const {
  AUTOPAR_TRY(read, inputs_of(graph));
  const auto inputs = std::make_shared<Inputs>(std::move(read));
  const std::optional<StrategyFile> pins = pins_of(graph);
  if (way.recompute != Recompute::kNone) {
    AUTOPAR_TRY(repeated, repeat_ops_of_unit(*inputs, way.recompute));
    if (!repeated) return std::optional<PricedProblem>();
  }
  auto problem = problem_on(inputs, options_, pins, search_.common, way.mesh, weights,
                            prices_of_ops, handed_on);
  if (!problem && problem.error().code == ErrorCode::kInput) return std::optional<PricedProblem>();
  if (!problem) return problem.error();
  graph = inputs->model.graph;
  return std::optional(std::move(*problem));
}

Result<PathPrices> ChunkPlans::prices_by_paths(const Graph& unit, const std::string& mesh,
                                               const StreamTimes& weights,
                                               const HandedOn& handed_on, Seconds bound,
                                               Seconds known) const {
  AUTOPAR_TRY(inputs, inputs_of(unit));
  const PathSearch search{tuning::units::kPathRounds, tuning::units::kEffort,
                          bound * (1 + tuning::units::kNearBound), tuning::units::kPathGain,
                          known * tuning::units::kFarPlan};
  auto found = autopar::prices_by_paths(inputs, options_, pins_of(unit), search_.common, mesh,
                                        weights, handed_on, search);
  // Where the mesh cannot keep the pins.
  if (!found && found.error().code == ErrorCode::kInput)
    return PathPrices{{}, kInfinity, kInfinity};
  return found;
}

Result<UnitKeeping> ChunkPlans::keeping_of(const Graph& unit, Recompute most,
                                           const std::optional<StreamTimes>& weights,
                                           const std::set<std::string>& shared) const {
  AUTOPAR_TRY(inputs, inputs_of(unit));
  Graph graph = unit;
  graph.kernels = group_kernels(graph, stage_.cluster.profile, options_.updates);
  AUTOPAR_TRY(again, seconds_again(inputs, graph));
  UnitKeeping keeping{most, std::move(graph), {}, std::move(again)};
  const auto devices = static_cast<double>(device_count());
  const double factor =
      (weights ? weights->compute : 1) * static_cast<double>(unit.passes) / devices;
  for (Seconds& seconds : keeping.repeat) seconds *= factor;
  const std::set<ValueId> outputs(unit.outputs.begin(), unit.outputs.end());
  for (std::size_t v = 0; v < unit.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    const Value& value = unit.values[v];
    const bool is_own = outputs.count(id) == 0 && shared.count(value.name) == 0;
    const bool counts = is_own && !keeping.unit.is_inside(id);
    keeping.bytes.push_back(counts ? static_cast<double>(value.bytes()) / devices : 0);
  }
  return keeping;
}

Result<std::optional<Recompute>> ChunkPlans::asked_level() const {
  return parse_recompute_option(options_.recompute, search_.pins ? &*search_.pins : nullptr);
}

Result<Bytes> ChunkPlans::room() const {
  AUTOPAR_TRY(all, room_of(stage_.cluster, search_.common));
  return std::max<Bytes>(0, all - left_);
}

Result<CommonOptions> ChunkPlans::options_of(const std::string& mesh, Bytes beside) const {
  CommonOptions common = search_.common;
  // A pin file that names axes has them for every chunk.
  const bool is_named = search_.pins && !search_.pins->mesh.empty();
  if (!mesh.empty() && !is_named) common.mesh = mesh;
  if (beside == 0 && left_ == 0) return common;
  AUTOPAR_TRY(all, room());
  const Bytes left = std::max<Bytes>(1, all - beside);
  common.memory = std::to_string(stage_.cluster.profile.upper_memory(left));
  return common;
}

Result<Inputs> ChunkPlans::inputs_of(Graph graph) const {
  Inputs inputs = stage_;
  AUTOPAR_TRY(rules, rules_of(graph, inputs.user_rules));
  inputs.model.graph = std::move(graph);
  inputs.rules = std::move(rules);
  return inputs;
}

std::optional<StrategyFile> ChunkPlans::pins_of(const Graph& graph) const {
  if (!search_.pins) return {};
  return pins_of_part(*search_.pins, graph);
}

// "16", "8x2", "4x4", "2x8", "1x16": as far as the tiers have them.
std::vector<std::string> ChunkPlans::meshes() const {
  const std::int64_t devices = stage_.cluster.device_count();
  std::vector<std::string> found;
  for (std::int64_t tensor = 1; tensor <= devices; ++tensor) {
    if (devices % tensor != 0) continue;
    const std::int64_t data = devices / tensor;
    const Result<Mesh> mesh = make_mesh(stage_.cluster, {data, tensor});
    if (!mesh) continue;
    const std::string text = to_text(*mesh);
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  }
  if (found.empty()) found.emplace_back();
  return found;
}

}  // namespace autopar
