#include "planning/pipelines/pipeline_step.hpp"

#include <algorithm>
#include <set>

#include "autopar/kernels.hpp"
#include "autopar/report.hpp"
#include "planning/input_pins.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/moved_cuts.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/read_as_made.hpp"
#include "planning/pipelines/room.hpp"
#include "support/parallel.hpp"

namespace autopar {

namespace {

using tuning::outer::kFarAbove;
using tuning::outer::kHopeless;
using tuning::outer::kOpenGain;
using tuning::outer::kPromising;
using tuning::outer::kSingleGap;

const std::vector<OpId>* cuts_of(const FormCandidate& candidate) {
  return candidate.is_pinned ? &candidate.pinned : nullptr;
}

// What each chunk of these cuts takes beside its ops.
std::vector<Seconds> beside_ops(const ChunkSeconds& memory, const std::vector<OpId>& cuts) {
  std::vector<Seconds> beside(cuts.size() + 1, 0);
  for (std::size_t c = 0; memory && c < beside.size(); ++c) {
    beside[c] = memory(c, c == 0 ? OpId(0) : cuts[c - 1], c < cuts.size() ? cuts[c] : OpId());
  }
  return beside;
}

// What does not fit, or cannot be cut there, or be as it is pinned.
bool may_have_other_cuts(const Error& error) {
  return error.code == ErrorCode::kInfeasible || error.code == ErrorCode::kInput;
}

// An op on elements of the backward pass that reads nothing of that pass stands apart in the step,
// and may be a part of the kernel of its readers in a chunk, whose other inputs come from outside.
// For bounds it is taken to be that: it is not launched, and what it makes goes nowhere.
void join_early_ops(Graph& step) {
  if (step.kernels.empty()) return;
  const std::vector<std::vector<Use>> uses = uses_of(step);
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const Op& op = step.ops[o];
    OpKernel& kernel = step.kernels.of_op[o];
    if (op.phase != Phase::kBackward || kernel.kind != OpKernel::Kind::kElements) continue;
    const bool is_early = std::none_of(op.inputs.begin(), op.inputs.end(), [&](ValueId input) {
      const OpId maker = input.valid() ? step.value(input).producer : OpId();
      return maker.valid() && step.op(maker).phase == Phase::kBackward;
    });
    if (!is_early) continue;
    kernel.launches = false;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      if (!op.has_output(i)) continue;
      kernel.inside_outputs |= std::uint64_t{1} << i;
      for (const Use& use : uses[op.outputs[i].index()]) {
        OpKernel& reader = step.kernels.of_op[use.op.index()];
        if (reader.kind != OpKernel::Kind::kElements) continue;
        reader.inside_inputs |= std::uint64_t{1} << static_cast<unsigned>(use.port);
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<PipelineStep>> PipelineStep::open(
    StagedStep asked, const std::optional<StrategyFile>& pins, const CommonOptions& common,
    std::chrono::steady_clock::time_point begin, PhaseClock& clock,
    std::shared_ptr<UnitShelf> shelf) {
  const Inputs& inputs = *asked.inputs;
  Graph step = inputs.model.graph;
  step.kernels = group_kernels(step, inputs.cluster.profile, asked.options.updates);
  join_early_ops(step);
  AUTOPAR_TRY(seconds, seconds_of_ops(inputs, step, asked.options.updates));
  return std::unique_ptr<PipelineStep>(new PipelineStep(std::move(asked), std::move(step),
                                                        std::move(seconds), pins, common, begin,
                                                        clock, std::move(shelf)));
}

Result<FormCandidate> PipelineStep::candidate_of(const PipelineForm& form) {
  FormCandidate candidate;
  candidate.form = form;
  if (form.stages == 1) {
    candidate.bound = bounds_.of_single_compute(search_.whole.cluster);
    candidate.has_no_units = !step_.has_passes();
    candidate.is_begun = candidate.is_searched = candidate.is_estimated = candidate.has_no_units;
    return candidate;
  }
  AUTOPAR_TRY(stage, stage_of(search_.whole.cluster, form.stages));
  candidate.stage = std::move(stage);
  AUTOPAR_TRY(schedule, schedule_of(form, step_));
  candidate.schedule = std::move(schedule);
  AUTOPAR_TRY(given, given_cuts(form, candidate.schedule.stage_of_chunk.size()));
  candidate.is_pinned = given.has_value();
  if (given) {
    bounds_.add_places(*given);
    candidate.pinned = std::move(*given);
  }
  return candidate;
}

void PipelineStep::bound_by_compute(FormCandidate& candidate) const {
  if (candidate.form.stages == 1) return;
  candidate.bound = bounds_.of_compute(candidate.schedule, candidate.stage, cuts_of(candidate));
  // Of small steps estimates cost little.
  if (is_small() || candidate.bound <= 0) return;
  const Seconds even = bounds_.of_even_chunks(candidate.schedule, candidate.stage);
  candidate.waits = std::max(1.0, even / candidate.bound);
}

// First the usual ones alone, as that rules out most forms.
Status PipelineStep::search_units(FormCandidate& candidate) {
  const auto of = candidate.is_begun ? BoundOf::kAllUnits : BoundOf::kUsualUnits;
  AUTOPAR_TRY(bound, candidate.form.stages == 1
                         ? bounds_.of_single(search_.whole.cluster, of)
                         : bounds_.of(candidate.schedule, candidate.stage, cuts_of(candidate), of));
  candidate.bound = std::max(candidate.bound, bound);
  candidate.is_searched = candidate.is_begun;
  candidate.is_begun = true;
  return Ok{};
}

Status PipelineStep::estimate(FormCandidate& candidate, Seconds far) {
  AUTOPAR_TRY(found, estimated(candidate, UnitEnds::kAlike, far));
  candidate.estimate = found;
  candidate.is_estimated = true;
  return Ok{};
}

// What chunks that are cut where the bounds of units balance would take by these. 0: the form
// cannot be cut so, or its cuts are given. Cuts of what takes longer than `far` are not moved.
Result<Seconds> PipelineStep::estimated(const FormCandidate& candidate, UnitEnds ends,
                                        Seconds far) {
  if (candidate.form.stages == 1) return bounds_.estimate_of_single(search_.whole.cluster);
  if (candidate.is_pinned) return Seconds{0};
  AUTOPAR_TRY(seconds, bounds_.seconds_on(candidate.stage));
  AUTOPAR_TRY(memory, bounds_.memory_seconds(candidate.schedule, candidate.stage, false, ends));
  const auto devices = static_cast<double>(candidate.stage.device_count());
  const auto takes = [&](const std::vector<OpId>& cuts) -> Result<Seconds> {
    const std::vector<ChunkCost> costs = costs_by_ops(seconds, memory, cuts, devices);
    PipelineSchedule schedule = candidate.schedule;
    add_updates(schedule, false);
    AUTOPAR_TRY(times, simulate_schedule(schedule, costs));
    return times.makespan;
  };
  const auto balanced = balanced_by(candidate, seconds, memory);
  if (!balanced) return Seconds{0};
  AUTOPAR_TRY(first, takes(*balanced));
  if (first > far) return first;
  const auto cuts = moved_by(candidate, *balanced, seconds, memory);
  if (!cuts) return Seconds{0};
  return takes(*cuts);
}

void PipelineStep::forget_plans() {
  for (auto& [stages, plans] : plans_) plans.forget_plans();
}

Result<PipelinePlan> PipelineStep::plan(const FormCandidate& candidate, Seconds cutoff) {
  AUTOPAR_TRY(best, plan_by_cuts(candidate, cutoff));
  return read_better(std::move(best));
}

Result<PipelinePlan> PipelineStep::read_better(PipelinePlan plan) const {
  AUTOPAR_TRY(room, room_of(plan.stage, search_.common));
  return read_as_made(plans_.at(plan.form.stages), search_.whole.cluster, search_.options.updates,
                      room, std::move(plan));
}

Result<PipelinePlan> PipelineStep::plan_by_cuts(const FormCandidate& candidate, Seconds cutoff) {
  auto best = plan_by_ends(candidate, cutoff);
  const bool is_worth_it = is_small() || promises(candidate, cutoff);
  const bool is_far = best ? best->times.makespan > candidate.bound * (1 + kFarAbove)
                           : may_have_other_cuts(best.error()) && is_worth_it;
  if (candidate.is_pinned || !is_far || search_.is_over()) return best;
  auto other =
      plan_without_memory(candidate, best ? std::min(cutoff, best->times.makespan) : cutoff);
  if (other && (!best || other->times.makespan < best->times.makespan)) return other;
  return best;
}

// Whether a form whose first cuts do not fit is worth others, beside a plan that takes `cutoff`.
bool PipelineStep::promises(const FormCandidate& candidate, Seconds cutoff) {
  return cutoff == kInfinity || candidate.likely() < (1 - kPromising) * cutoff;
}

// Cut as if there was no memory limit. Errors: it is cut so anyway, or there is no plan.
Result<PipelinePlan> PipelineStep::plan_without_memory(const FormCandidate& candidate,
                                                       Seconds cutoff) {
  AUTOPAR_TRY(memory,
              bounds_.memory_seconds(candidate.schedule, candidate.stage, true, UnitEnds::kAlike));
  if (!memory) return infeasible_error("memory does not bind");
  AUTOPAR_TRY(seconds, bounds_.seconds_on(candidate.stage));
  AUTOPAR_TRY(with_memory, cut_by(candidate, seconds, memory));
  AUTOPAR_TRY(cuts, cut_by(candidate, seconds, nullptr));
  if (cuts == with_memory) return infeasible_error("memory does not change the cuts");
  return plan_from({std::move(cuts), std::move(seconds), nullptr}, candidate, cutoff,
                   UnitEnds::kAlike);
}

// Units that all hand on what they are handed, alike, leave out plans that take turns. So the best
// plan is made again with plans of units that leave this open, where these promise enough; the
// faster is taken.
Result<PipelinePlan> PipelineStep::plan_by_ends(const FormCandidate& candidate, Seconds cutoff) {
  const bool may_differ = !candidate.is_pinned && bounds_.hands_on();
  const bool is_beside = may_differ && cutoff == kInfinity && bounds_.knows_paths(candidate.stage);
  Result<PipelinePlan> best = infeasible_error("not planned yet");
  Result<Seconds> open = Seconds{0};
  in_parallel(threads_of_search(search_.common), is_beside ? 2 : 1, [&](std::size_t i) {
    if (i == 0) best = plan_by_units(candidate, cutoff, UnitEnds::kAlike);
    if (i == 1) open = estimated(candidate, UnitEnds::kOpen, kInfinity);
  });
  if (!best || !may_differ || best->times.makespan >= cutoff || search_.is_over()) return best;
  if (!is_beside) open = estimated(candidate, UnitEnds::kOpen, kInfinity);
  if (!open) return open.error();
  if (*open > (1 - kOpenGain) * candidate.estimate) return best;
  auto other = plan_by_units(candidate, best->times.makespan, UnitEnds::kOpen);
  if (other && other->times.makespan < best->times.makespan) return other;
  return best;
}

// Cut by what bounds say of ops, and of memory.
Result<PipelinePlan> PipelineStep::plan_by_units(const FormCandidate& candidate, Seconds cutoff,
                                                 UnitEnds ends) {
  if (candidate.is_pinned) return planned(candidate, candidate.pinned, cutoff, ends);
  AUTOPAR_TRY(seconds, bounds_.seconds_on(candidate.stage));
  AUTOPAR_TRY(memory, bounds_.memory_seconds(candidate.schedule, candidate.stage, true, ends));
  AUTOPAR_TRY(first, cut_by(candidate, seconds, memory));
  auto best = plan_from({first, seconds, memory}, candidate, cutoff, ends);
  const auto has_no_plan = [&] { return !best && may_have_other_cuts(best.error()); };
  std::set<std::vector<OpId>> tried = {first};
  const auto try_other = [&](const std::vector<OpId>& cuts, const OpSeconds& by) {
    if (search_.is_over() || !tried.insert(cuts).second) return;
    const Seconds least = best ? std::min(cutoff, best->times.makespan) : cutoff;
    auto other = plan_from({cuts, by, memory}, candidate, least, ends);
    // Such as where a chunk would have no op of its own.
    if (!other && other.error().code != ErrorCode::kInfeasible) return;
    // Of those that do not fit the last one, which is cut for memory, says how much is missing.
    if (!best || (other && other->times.makespan < best->times.makespan)) best = std::move(other);
  };
  if (is_small() && (best || has_no_plan())) {
    // What updates wait for is not known, nor what collectives take in the passes of small steps.
    OpSeconds passes = seconds;
    passes.update.assign(passes.update.size(), 0);
    AUTOPAR_TRY(balanced, balanced_by(candidate, passes, memory));
    AUTOPAR_TRY(moved, moved_by(candidate, balanced, passes, memory));
    const std::set<std::vector<OpId>> others = {std::move(moved), std::move(balanced)};
    for (const std::vector<OpId>& cuts : others) try_other(cuts, passes);
  }
  // A larger step has its plan by then, or one of another form is as good.
  if (is_small() ? best || has_no_plan() : has_no_plan() && promises(candidate, cutoff)) {
    const auto even = balanced_by_memory(candidate);
    if (even) try_other(*even, seconds);
  }
  return best;
}

// Then by what the chunks' plans take, as long as that promises more than tuning::outer::kGain.
Result<PipelinePlan> PipelineStep::plan_from(Cut cut, const FormCandidate& candidate,
                                             Seconds cutoff, UnitEnds ends) {
  auto& [cuts, seconds, memory] = cut;
  AUTOPAR_TRY(best, planned(candidate, cuts, cutoff, ends));
  for (int round = 0; round < tuning::outer::kRounds && !search_.is_over(); ++round) {
    scale(seconds, best, cuts, memory);
    AUTOPAR_TRY(next, cut_by(candidate, seconds, memory));
    if (next == cuts) break;
    AUTOPAR_TRY(promised, time_by(best, next, seconds, memory));
    if (promised > best.times.makespan * (1 - tuning::outer::kGain)) break;
    auto plan = planned(candidate, next, std::min(cutoff, best.times.makespan), ends);
    if (!plan || plan->times.makespan >= best.times.makespan) break;
    best = std::move(*plan);
    cuts = std::move(next);
  }
  return best;
}

// Per op its chunk of these cuts.
std::vector<std::size_t> PipelineStep::chunks_by(const std::vector<OpId>& cuts) const {
  std::vector<std::size_t> chunk_of(step_.ops.size());
  std::size_t chunk = 0;
  for (std::size_t o = 0; o < chunk_of.size(); ++o) {
    if (chunk < cuts.size() && o == cuts[chunk].index()) ++chunk;
    chunk_of[o] = chunk;
  }
  return chunk_of;
}

// Sums of seconds on one device, per chunk.
std::vector<ChunkCost> PipelineStep::sums_of(const OpSeconds& seconds,
                                             const std::vector<OpId>& cuts,
                                             const ChunkSeconds& memory) const {
  std::vector<ChunkCost> sums(cuts.size() + 1);
  const std::vector<std::size_t> chunk_of = chunks_by(cuts);
  const std::vector<Seconds> beside = beside_ops(memory, cuts);
  for (std::size_t c = 0; c < sums.size(); ++c) sums[c].steady.backward = beside[c];
  for (std::size_t o = 0; o < chunk_of.size(); ++o) {
    ChunkCost& sum = sums[chunk_of[o]];
    sum.steady.forward += seconds.forward[o];
    sum.steady.backward += seconds.backward[o];
    sum.update += seconds.update[o];
  }
  return sums;
}

// Makes of the seconds of each chunk's ops, with what memory adds, what its plan takes.
void PipelineStep::scale(OpSeconds& seconds, const PipelinePlan& plan,
                         const std::vector<OpId>& cuts, const ChunkSeconds& memory) const {
  const std::vector<std::size_t> chunk_of = chunks_by(cuts);
  const auto sums = sums_of(seconds, cuts, memory);
  const auto devices = static_cast<double>(plan.stage.device_count());
  for (std::size_t o = 0; o < chunk_of.size(); ++o) {
    const PassSeconds& sum = sums[chunk_of[o]].steady;
    const ChunkCost& cost = plan.chunks[chunk_of[o]].cost;
    const PassSeconds& taken = cost.steady;
    if (sum.forward > 0) seconds.forward[o] *= taken.forward * devices / sum.forward;
    if (sum.backward > 0) seconds.backward[o] *= taken.backward * devices / sum.backward;
    const Seconds updates = sums[chunk_of[o]].update;
    if (updates > 0) seconds.update[o] *= cost.update * devices / updates;
  }
}

// What these cuts would take if chunks took what their ops do.
Result<Seconds> PipelineStep::time_by(const PipelinePlan& plan, const std::vector<OpId>& cuts,
                                      const OpSeconds& seconds, const ChunkSeconds& memory) const {
  const auto sums = sums_of(seconds, cuts, memory);
  const auto devices = static_cast<double>(plan.stage.device_count());
  std::vector<ChunkCost> costs;
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    ChunkCost cost = plan.chunks[c].cost;
    const PassSeconds taken = cost.steady;
    PassSeconds& steady = cost.steady;
    steady.forward = sums[c].steady.forward / devices;
    steady.backward = sums[c].steady.backward / devices;
    cost.update = sums[c].update / devices;
    const double part = taken.backward > 0 ? taken.weight_gradients / taken.backward : 0;
    steady.weight_gradients = part * steady.backward;
    steady.input_gradients = (1 - part) * steady.backward;
    cost.first = cost.last = std::nullopt;
    costs.push_back(cost);
  }
  AUTOPAR_TRY(times, simulate_schedule(plan.schedule, costs));
  return times.makespan;
}

// With what waits between stages, which is known of plans alone, those may take too much: then they
// are made again with less.
Result<PipelinePlan> PipelineStep::planned(const FormCandidate& candidate,
                                           const std::vector<OpId>& cuts, Seconds cutoff,
                                           UnitEnds ends, const std::vector<std::string>& meshes) {
  AUTOPAR_TRY(room, room_of(candidate.stage, search_.common));
  Bytes left = 0, most = 0;
  for (int round = 0; round < tuning::outer::kWaitingRounds; ++round) {
    auto plan = planned_leaving(candidate, cuts, cutoff, ends, left, meshes);
    if (!plan && round > 0 && plan.error().code == ErrorCode::kInfeasible) break;
    const bool fits = !plan || !is_forward_only(candidate.schedule) || plan->peak_bytes <= room;
    if (fits) return plan;
    most = plan->peak_bytes;
    left += most - room;
  }
  return infeasible_error("with what waits between stages the fullest one takes " +
                          format_bytes(static_cast<double>(most)) + " per device, more than the " +
                          format_bytes(static_cast<double>(room)) +
                          " there are, and plans that leave room for it were not found");
}

Result<PipelinePlan> PipelineStep::planned_leaving(const FormCandidate& candidate,
                                                   const std::vector<OpId>& cuts, Seconds cutoff,
                                                   UnitEnds ends, Bytes left,
                                                   const std::vector<std::string>& meshes) {
  PipelinePlan plan;
  plan.form = candidate.form;
  plan.stage = candidate.stage;
  plan.schedule = candidate.schedule;
  AUTOPAR_TRY(chunks, chunks_of(step_, cuts, search_.options.updates));
  plan.handed = std::move(chunks.handed);
  const InFlight flying = in_flight(plan.schedule);
  for (std::size_t c = 0; c < chunks.chunks.size(); ++c) {
    chunks.chunks[c].graph.in_flight = flying.of_chunk[c];
  }
  for (const OpId op : cuts) plan.cut_ops.push_back(step_.op(op).name);
  AUTOPAR_TRY(hints, hints_of(candidate, cuts, flying, ends));
  AUTOPAR_TRY(least, bounds_.least_seconds_on(candidate.stage));
  plan.passes = plan.schedule.lines;
  for (ChunkHint& hint : hints) hint.room -= static_cast<double>(left);
  std::optional<ChunkPlans> alone;  // what others were planned with is more
  if (left > 0 || !meshes.empty()) {
    alone.emplace(search_, plan.stage).leave(left);
    alone->plan_on(meshes);
  }
  ChunkPlans& plans =
      alone ? *alone : plans_.try_emplace(plan.form.stages, search_, plan.stage).first->second;
  ChunkPlans::MayGain gains;
  if (cutoff < kInfinity) {
    // What is known of the chunks that are planned, and what the bounds say of the others.
    std::vector<ChunkCost> costs =
        costs_by_ops(least, {}, cuts, static_cast<double>(plan.stage.device_count()));
    gains = [&, costs](const std::vector<ChunkPlan>& known) mutable {
      ChunkCost& last = costs[known.size() - 1];
      const int alike = known.back().alike;
      last = alike < 0 ? chunk_cost(*known.back().planned, {})
                       : costs[static_cast<std::size_t>(alike)];
      last.first = last.last = std::nullopt;  // what is fetched while stages wait
      return may_gain(candidate, costs, known.size(), cutoff);
    };
  }
  const bool may_join = parse_schedule_kind(plan.form.schedule).has_value();
  AUTOPAR_TRY(chunk_plans,
              plans.of(std::move(chunks.chunks), plan.schedule, hints, cutoff, may_join, gains));
  plan.take(std::move(chunk_plans));
  AUTOPAR_TRY(room, room_of(plan.stage, search_.common));
  AUTOPAR_RETURN_IF_ERROR(
      price_pipeline(search_.whole.cluster, search_.options.updates, room, plan));
  return plan;
}

// Whether a pipeline may take less than `cutoff` of whose chunks the first are planned, with what
// the bounds of units say of the others.
Result<bool> PipelineStep::may_gain(const FormCandidate& candidate,
                                    const std::vector<ChunkCost>& costs, std::size_t planned,
                                    Seconds cutoff) {
  PipelineSchedule schedule = candidate.schedule;
  add_updates(schedule, false);
  AUTOPAR_TRY(times, simulate_schedule(schedule, costs));
  logging::debug("{} of {} chunks are planned: at least about {} in place of {}", planned,
                 costs.size(), format_seconds(times.makespan), format_seconds(cutoff));
  return times.makespan < cutoff * (1 + kHopeless);
}

// How each chunk is planned first.
Result<std::vector<ChunkHint>> PipelineStep::hints_of(const FormCandidate& candidate,
                                                      const std::vector<OpId>& cuts,
                                                      const InFlight& flying, UnitEnds ends) {
  const std::size_t chunks = cuts.size() + 1;
  std::vector<double> first(chunks + 1), units(chunks);
  for (std::size_t c = 0; c < chunks; ++c) {
    first[c + 1] = bounds_.units_until(c + 1 < chunks ? cuts[c] : OpId());
    units[c] = first[c + 1] - first[c];
  }
  AUTOPAR_TRY(rooms, bounds_.rooms(candidate.schedule, candidate.stage, units, ends));
  std::vector<ChunkHint> hints(chunks);
  for (std::size_t c = 0; c < chunks; ++c) {
    AUTOPAR_TRY(hint, bounds_.hint(candidate.stage, first[c], units[c], flying.of_chunk[c],
                                   rooms[c], ends));
    hints[c] = std::move(hint);
  }
  return hints;
}

namespace {

// What was searched before a faster plan was made otherwise.
void take_search_of(Planned& searched, Planned& faster) {
  SearchOutcome outcome = std::move(searched.outcome);
  outcome.strategy = std::move(faster.outcome.strategy);
  outcome.cost = std::move(faster.outcome.cost);
  faster.outcome = std::move(outcome);
}

}  // namespace

Result<Planned> PipelineStep::better_of_units(Planned best) {
  const Seconds time = best.outcome.cost.time();
  if (search_.is_over()) return best;
  const Cluster& cluster = search_.whole.cluster;
  AUTOPAR_TRY(promised, bounds_.estimate_of_single(cluster));
  logging::debug("1 stage: {}, by its units about {}", format_seconds(time),
                 format_seconds(promised));
  if (promised == 0 || promised > (1 - kSingleGap) * time) return best;
  AUTOPAR_TRY(room, room_of(cluster, search_.common));
  AUTOPAR_TRY(hint, bounds_.hint(cluster, 0, bounds_.units_until(OpId()), 1,
                                 static_cast<double>(room), UnitEnds::kAlike));
  // Plans that were looked for in less room may be faster than those that fill it.
  if (hint.parts) {
    MixAsked less{.room = tuning::outer::kLessRoom * static_cast<double>(room)};
    AUTOPAR_RETURN_IF_ERROR(hint.parts(less, ""));
  }
  AUTOPAR_TRY(other, ChunkPlans(search_, cluster).of_units(asked_.inputs, hint));
  if (!other || other->outcome.cost.time() >= time) return best;
  // Bounds of searches in which all layers repeat the same are none of plans in which they do not;
  // with all memory and nothing repeated they are, and that of compute.
  SearchOutcome& searched = best.outcome;
  const Seconds of_all =
      std::max(searched.unlimited_lower_bound, bounds_.of_single_compute(cluster));
  searched.lower_bound = std::min(searched.lower_bound, of_all);
  // Its mesh may be one that no tried one divides further.
  if (searched.lower_bound > other->outcome.cost.time()) {
    searched.lower_bound = bounds_.of_single_compute(cluster);
  }
  take_search_of(best, *other);
  return std::move(*other);
}

Result<Planned> PipelineStep::plan_single(Seconds cutoff, bool finer) {
  PlanOptions options = search_.options;
  const ChunkPlans plans(search_, search_.whole.cluster);
  if (finer && !plans.may_choose_meshes()) return infeasible_error("the meshes are given");
  if (!finer) plans.set_meshes(options);
  // The bound is about its plans, and these meshes are few.
  if (options.searcher == "auto") options.searcher = "dp";
  OtherPlan other;
  if (!finer && step_.has_passes())
    other = [this](Planned best) { return better_of_units(std::move(best)); };
  return best_of_forms(std::make_unique<Inputs>(search_.whole), search_.given, options,
                       search_.pins, search_.common, search_.begin, search_.clock, {cutoff, 0},
                       other);
}

Result<Planned> better_of_units(Planned best, const PlanOptions& given, const PlanOptions& options,
                                const std::optional<StrategyFile>& pins,
                                const CommonOptions& common,
                                std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const Graph& graph = best.inputs->model.graph;
  const bool is_exact = options.searcher == "auto" || options.searcher == "dp";
  const bool is_named = pins && repeats_by_name(*pins);  // which ops are repeated
  const bool has_units = options.train && graph.has_passes() && graph.copies == 1;
  if (!is_exact || !has_units || is_named) return best;
  StagedStep step{nullptr, given, options, {PipelineForm{1, 1, ""}}};
  for (PlanOptions* own : {&step.given, &step.options}) {
    own->training.micro_batches = std::to_string(graph.passes);
  }
  AUTOPAR_TRY(inputs, load_inputs(step.given, common));
  if (pins) AUTOPAR_RETURN_IF_ERROR(take_checkpoints(*pins, *inputs));
  step.inputs = std::move(inputs);
  AUTOPAR_TRY(open, PipelineStep::open(std::move(step), pins, common, begin, clock,
                                       std::make_shared<UnitShelf>(tuning::units::kBytesAtHand)));
  return open->better_of_units(std::move(best));
}

}  // namespace autopar
