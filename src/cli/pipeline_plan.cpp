#include "cli/pipeline_plan.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "autopar/kernels.hpp"
#include "cli/chunk_cost.hpp"
#include "cli/chunk_plans.hpp"
#include "cli/pinned_stages.hpp"
#include "cli/pipeline_bound.hpp"
#include "cli/pipeline_forms.hpp"
#include "cli/pipeline_tuning.hpp"

namespace autopar::cli {

namespace {

using tuning::outer::kGain;
using tuning::outer::kRounds;
using tuning::outer::kUnlikely;

class Pipelines {
 public:
  // `step`: with kernels.
  Pipelines(const ChunkSearch& search, const Graph& step, const OpSeconds& seconds)
      : search_(search), step_(step), bounds_(search, step, seconds) {}

  // The form that is likely to be fastest goes on: to a better bound and an estimate, by searches
  // of units, and then to a plan, until no other can have a faster one, or is likely to (best-first
  // branch and bound: Lawler and Wood, "Branch-and-bound methods: a survey", 1966).
  Result<StagedPlan> run(const std::vector<PipelineForm>& forms) {
    is_one_ = forms.size() == 1;
    AUTOPAR_TRY(open, candidates_of(forms));
    while (!open.empty()) {
      // Without time the first that is ready for it is planned, so that there is a plan.
      const bool is_over = search_.is_over();
      if (is_over && best_time() < kInfinity) break;
      const auto next = std::min_element(open.begin(), open.end(),
                                         [is_over](const Candidate& a, const Candidate& b) {
                                           if (is_over && a.is_searched != b.is_searched)
                                             return a.is_searched;
                                           return a.likely() < b.likely();
                                         });
      if (next->bound >= best_time() || next->likely() >= best_time() * (1 + kUnlikely)) break;
      if (next->is_searched || is_over) {
        lower_bound_ = std::min(lower_bound_, next->bound);
        AUTOPAR_RETURN_IF_ERROR(plan_form(*next));
        open.erase(next);
      } else {
        AUTOPAR_TRY(bound, searched_bound(*next));
        next->bound = std::max(next->bound, bound);
        next->is_searched = true;
        AUTOPAR_TRY(estimate, estimated(*next));
        next->estimate = estimate;
        spdlog::debug("{}: no plan takes less than {}, by its units about {}", to_text(next->form),
                      format_seconds(next->bound), format_seconds(next->estimate));
      }
    }
    for (const Candidate& left : open) {
      lower_bound_ = std::min(lower_bound_, left.bound);
      std::string why = "not searched: no plan takes less than " + format_seconds(left.bound);
      if (left.bound < best_time()) {
        why += left.estimate > 0 ? ", by its units about " + format_seconds(left.estimate)
                                 : std::string("; the time was up");
      }
      tried_.push_back({left.form, 0, 0, std::move(why)});
    }
    return taken();
  }

 private:
  // A form before it is planned.
  struct Candidate {
    PipelineForm form;
    Cluster stage;
    PipelineSchedule schedule;
    std::vector<OpId> pinned;  // cuts
    bool is_pinned = false;
    Seconds bound = 0;         // no plan of this form is faster
    bool is_searched = false;  // that bound, by units
    Seconds estimate = 0;      // by units, with balanced cuts; 0: not known
    Seconds likely() const { return std::max(bound, estimate); }
  };

  // The fastest of all, with what became of the others.
  Result<StagedPlan> taken() {
    if (single_) return StagedPlan{{}, std::move(single_)};
    if (!found_) return infeasible_error(why_none());
    found_->tried = std::move(tried_);
    found_->lower_bound = std::min(lower_bound_, found_->times.makespan);
    return StagedPlan{std::move(found_), {}};
  }

  Result<std::vector<Candidate>> candidates_of(const std::vector<PipelineForm>& forms) {
    std::vector<Candidate> candidates;
    for (const PipelineForm& form : forms) {
      auto candidate = candidate_of(form);
      if (candidate) {
        candidates.push_back(std::move(*candidate));
      } else if (is_one_) {
        return candidate.error();
      } else {
        tried_.push_back({form, 0, 0, candidate.error().message});
      }
    }
    return candidates;
  }

  Result<Candidate> candidate_of(const PipelineForm& form) const {
    Candidate candidate;
    candidate.form = form;
    if (form.stages == 1) {
      candidate.bound = bounds_.of_single_compute(search_.whole.cluster);
      return candidate;
    }
    AUTOPAR_TRY(stage, stage_of(search_.whole.cluster, form.stages));
    candidate.stage = std::move(stage);
    AUTOPAR_TRY(schedule, schedule_of(form, step_.passes));
    candidate.schedule = std::move(schedule);
    AUTOPAR_TRY(given, given_cuts(form, candidate.schedule.stage_of_chunk.size()));
    candidate.is_pinned = given.has_value();
    if (given) candidate.pinned = std::move(*given);
    candidate.bound = bounds_.of_compute(candidate.schedule, candidate.stage, cuts_of(candidate));
    return candidate;
  }

  Result<Seconds> searched_bound(const Candidate& candidate) {
    if (candidate.form.stages == 1) return bounds_.of_single(search_.whole.cluster);
    return bounds_.of(candidate.schedule, candidate.stage, cuts_of(candidate));
  }

  // What chunks that are cut where the bounds of units balance would take by these. 0: the form
  // cannot be cut so, or its cuts are given.
  Result<Seconds> estimated(const Candidate& candidate) {
    if (candidate.form.stages == 1 || candidate.is_pinned) return Seconds{0};
    AUTOPAR_TRY(seconds, bounds_.seconds_on(candidate.stage));
    AUTOPAR_TRY(memory, bounds_.memory_seconds(candidate.schedule, candidate.stage));
    const auto cuts = cut_by(candidate, seconds, memory);
    if (!cuts) return Seconds{0};
    const std::vector<std::size_t> chunk_of = chunks_by(*cuts);
    const auto devices = static_cast<double>(candidate.stage.device_count());
    std::vector<ChunkCost> costs(cuts->size() + 1);
    for (std::size_t o = 0; o < chunk_of.size(); ++o) {
      PassSeconds& steady = costs[chunk_of[o]].steady;
      steady.forward += seconds.forward[o] / devices;
      steady.backward += seconds.backward[o] / devices;
      steady.input_gradients += seconds.inputs[o] / devices;
      steady.weight_gradients += (seconds.backward[o] - seconds.inputs[o]) / devices;
    }
    const std::vector<Seconds> beside = beside_ops(memory, *cuts);
    for (std::size_t c = 0; c < costs.size(); ++c) {
      costs[c].steady.backward += beside[c] / devices;
      costs[c].steady.input_gradients += beside[c] / devices;
    }
    PipelineSchedule schedule = candidate.schedule;
    add_updates(schedule, false);
    AUTOPAR_TRY(times, simulate_schedule(schedule, costs));
    return times.makespan;
  }

  static const std::vector<OpId>* cuts_of(const Candidate& candidate) {
    return candidate.is_pinned ? &candidate.pinned : nullptr;
  }

  Status plan_form(const Candidate& candidate) {
    const PipelineForm& form = candidate.form;
    if (form.stages == 1) return plan_single(form);
    auto plan = best_cuts(candidate);
    if (!plan) return note(form, plan.error());
    tried_.push_back({form, plan->times.makespan, plan->peak_bytes, ""});
    if (plan->times.makespan < best_time()) {
      found_ = std::move(*plan);
      single_.reset();
    }
    return Ok{};
  }

  Status plan_single(const PipelineForm& form) {
    PlanOptions options = search_.options;
    const ChunkPlans plans(search_, search_.whole.cluster);
    if (plans.is_open()) options.meshes = plans.meshes();
    auto planned =
        best_of_forms(std::make_unique<Inputs>(search_.whole), search_.given, options, search_.pins,
                      search_.common, search_.begin, search_.clock, {best_time(), 0});
    if (!planned) return note(form, planned.error());
    const Seconds time = planned->outcome.cost.time();
    tried_.push_back({form, time, planned->outcome.cost.memory.total, ""});
    if (time < best_time()) single_.emplace(std::move(*planned));
    return Ok{};
  }

  // A form without a plan is no error where there are others.
  Status note(const PipelineForm& form, const Error& error) {
    if (is_one_ || error.code == ErrorCode::kInput) return error;
    const bool has_cutoff = best_time() < kInfinity && error.code == ErrorCode::kInfeasible;
    tried_.push_back(
        {form, 0, 0, has_cutoff ? "no plan that fits was found that is faster" : error.message});
    return Ok{};
  }

  // Cut by what bounds say of ops; then by what the chunks' plans take, as long as that promises
  // more than kGain.
  Result<PipelinePlan> best_cuts(const Candidate& candidate) {
    if (candidate.is_pinned) return planned(candidate, candidate.pinned);
    AUTOPAR_TRY(seconds, bounds_.seconds_on(candidate.stage));
    AUTOPAR_TRY(memory, bounds_.memory_seconds(candidate.schedule, candidate.stage));
    auto first = cut_by(candidate, seconds, memory);
    if (!first) return is_one_ ? first.error() : infeasible_error(first.error().message);
    std::vector<OpId> cuts = std::move(*first);
    AUTOPAR_TRY(best, planned(candidate, cuts));
    for (int round = 0; round < kRounds && !search_.is_over(); ++round) {
      scale(seconds, best, cuts, memory);
      AUTOPAR_TRY(next, cut_by(candidate, seconds, memory));
      if (next == cuts) break;
      AUTOPAR_TRY(promised, time_by(best, next, seconds, memory));
      if (promised > best.times.makespan * (1 - kGain)) break;
      auto plan = planned(candidate, next);
      if (!plan || plan->times.makespan >= best.times.makespan) break;
      best = std::move(*plan);
      cuts = std::move(next);
    }
    return best;
  }

  // `memory`: what memory adds to chunks.
  Result<std::vector<OpId>> cut_by(const Candidate& candidate, const OpSeconds& seconds,
                                   const ChunkSeconds& memory) const {
    return balanced_cuts(step_, static_cast<int>(candidate.schedule.stage_of_chunk.size()), seconds,
                         tier_between(search_.whole.cluster, candidate.stage).bandwidth_bytes_per_s,
                         search_.options.updates, memory);
  }

  // What each chunk of these cuts takes beside its ops.
  static std::vector<Seconds> beside_ops(const ChunkSeconds& memory,
                                         const std::vector<OpId>& cuts) {
    std::vector<Seconds> beside(cuts.size() + 1, 0);
    for (std::size_t c = 0; memory && c < beside.size(); ++c) {
      beside[c] = memory(c, c == 0 ? OpId(0) : cuts[c - 1], c < cuts.size() ? cuts[c] : OpId());
    }
    return beside;
  }

  // Per op its chunk of these cuts.
  std::vector<std::size_t> chunks_by(const std::vector<OpId>& cuts) const {
    std::vector<std::size_t> chunk_of(step_.ops.size());
    std::size_t chunk = 0;
    for (std::size_t o = 0; o < chunk_of.size(); ++o) {
      if (chunk < cuts.size() && o == cuts[chunk].index()) ++chunk;
      chunk_of[o] = chunk;
    }
    return chunk_of;
  }

  // Sums of seconds on one device, per chunk.
  std::vector<PassSeconds> sums_of(const OpSeconds& seconds, const std::vector<OpId>& cuts,
                                   const ChunkSeconds& memory) const {
    std::vector<PassSeconds> sums(cuts.size() + 1);
    const std::vector<std::size_t> chunk_of = chunks_by(cuts);
    const std::vector<Seconds> beside = beside_ops(memory, cuts);
    for (std::size_t c = 0; c < sums.size(); ++c) sums[c].backward = beside[c];
    for (std::size_t o = 0; o < chunk_of.size(); ++o) {
      sums[chunk_of[o]].forward += seconds.forward[o];
      sums[chunk_of[o]].backward += seconds.backward[o];
    }
    return sums;
  }

  // Makes of the seconds of each chunk's ops, with what memory adds, what its plan takes.
  void scale(OpSeconds& seconds, const PipelinePlan& plan, const std::vector<OpId>& cuts,
             const ChunkSeconds& memory) const {
    const std::vector<std::size_t> chunk_of = chunks_by(cuts);
    const auto sums = sums_of(seconds, cuts, memory);
    const auto devices = static_cast<double>(plan.stage.device_count());
    for (std::size_t o = 0; o < chunk_of.size(); ++o) {
      const PassSeconds& sum = sums[chunk_of[o]];
      const PassSeconds& taken = plan.chunks[chunk_of[o]].cost.steady;
      if (sum.forward > 0) seconds.forward[o] *= taken.forward * devices / sum.forward;
      if (sum.backward > 0) seconds.backward[o] *= taken.backward * devices / sum.backward;
    }
  }

  // What these cuts would take if chunks took what their ops do.
  Result<Seconds> time_by(const PipelinePlan& plan, const std::vector<OpId>& cuts,
                          const OpSeconds& seconds, const ChunkSeconds& memory) const {
    const auto sums = sums_of(seconds, cuts, memory);
    const auto devices = static_cast<double>(plan.stage.device_count());
    std::vector<ChunkCost> costs;
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      ChunkCost cost = plan.chunks[c].cost;
      const PassSeconds taken = cost.steady;
      PassSeconds& steady = cost.steady;
      steady.forward = sums[c].forward / devices;
      steady.backward = sums[c].backward / devices;
      const double part = taken.backward > 0 ? taken.weight_gradients / taken.backward : 0;
      steady.weight_gradients = part * steady.backward;
      steady.input_gradients = (1 - part) * steady.backward;
      cost.first = cost.last = std::nullopt;
      costs.push_back(cost);
    }
    AUTOPAR_TRY(times, simulate_schedule(plan.schedule, costs));
    return times.makespan;
  }

  Seconds best_time() const {
    if (single_) return single_->outcome.cost.time();
    return found_ ? found_->times.makespan : kInfinity;
  }

  std::string why_none() const {
    std::string text = "no plan was found";
    for (const PipelineTrial& trial : tried_) {
      text += "; " + to_text(trial.form) + ": " +
              (trial.why.empty() ? format_seconds(trial.seconds) : trial.why);
    }
    return text;
  }

  // Where the user says where chunks begin.
  Result<std::optional<std::vector<OpId>>> given_cuts(const PipelineForm& form,
                                                      std::size_t chunks) const {
    const std::string& names = search_.options.cuts;
    if (!names.empty()) {
      AUTOPAR_TRY(cuts, named_cuts(names, step_, chunks));
      return std::optional(std::move(cuts));
    }
    if (!search_.pins || search_.pins->stage_of_ops.empty()) {
      return std::optional<std::vector<OpId>>();
    }
    AUTOPAR_TRY(cuts, pinned_cuts(form));
    return std::optional(std::move(cuts));
  }

  // As pins say, by names of ops of the model or of what import made of them.
  Result<std::vector<OpId>> pinned_cuts(const PipelineForm& form) const {
    const StrategyFile& pins = *search_.pins;
    if (form.chunks_per_stage > 1) {
      return usage_error(pins.path + ": pipeline_stage goes with one chunk per stage, and " +
                         to_text(form) + " is asked for");
    }
    AUTOPAR_TRY(stages, pinned_stages(pins, search_.whole.model, step_));
    auto cuts =
        cuts_of_stages(step_, stages, static_cast<int>(form.stages), search_.options.updates);
    if (!cuts) return input_error(pins.path + ": " + cuts.error().message);
    return cuts;
  }

  Result<PipelinePlan> planned(const Candidate& candidate, const std::vector<OpId>& cuts) {
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
    AUTOPAR_TRY(hints, hints_of(candidate, cuts, flying));
    plan.passes = plan.schedule.lines;
    ChunkPlans& plans = plans_.try_emplace(plan.form.stages, search_, plan.stage).first->second;
    AUTOPAR_TRY(chunk_plans, plans.of(std::move(chunks.chunks), plan.schedule.stage_of_chunk, hints,
                                      best_time()));
    plan.chunks = std::move(chunk_plans);
    AUTOPAR_RETURN_IF_ERROR(price_pipeline(search_.whole.cluster, search_.options.updates, plan));
    return plan;
  }

  // How each chunk is planned first; a chunk has an even part of its stage's memory.
  Result<std::vector<ChunkHint>> hints_of(const Candidate& candidate, const std::vector<OpId>& cuts,
                                          const InFlight& flying) {
    const std::size_t chunks = cuts.size() + 1;
    const double part = static_cast<double>(candidate.form.stages) / static_cast<double>(chunks);
    std::vector<ChunkHint> hints(chunks);
    double from = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
      const double to = bounds_.units_until(c + 1 < chunks ? cuts[c] : OpId());
      AUTOPAR_TRY(hint, bounds_.hint(candidate.stage, to - from, flying.of_chunk[c], part));
      hints[c] = std::move(hint);
      from = to;
    }
    return hints;
  }

  const ChunkSearch& search_;
  const Graph& step_;
  PipelineBounds bounds_;
  Seconds lower_bound_ = kInfinity;
  std::optional<Planned> single_;
  bool is_one_ = false;                       // one form alone was asked for
  std::map<std::int64_t, ChunkPlans> plans_;  // by the number of stages
  std::optional<PipelinePlan> found_;
  std::vector<PipelineTrial> tried_;
};

}  // namespace

Result<Cluster> stage_of(const Cluster& cluster, std::int64_t stages) {
  Cluster stage = cluster;
  std::int64_t left = stages;
  for (std::size_t t = stage.tiers.size(); t-- > 0 && left > 1;) {
    Tier& tier = stage.tiers[t];
    const std::int64_t parts = std::gcd(tier.size, left);
    tier.size /= parts;
    left /= parts;
    if (tier.size > 1 && left > 1) break;
  }
  if (left > 1) {
    return usage_error("--stages " + std::to_string(stages) +
                       " does not divide the tiers of cluster '" + cluster.name +
                       "', the outermost first");
  }
  std::vector<Tier> tiers = {stage.tiers.front()};
  for (std::size_t t = 1; t < stage.tiers.size(); ++t) {
    if (stage.tiers[t].size > 1) tiers.push_back(stage.tiers[t]);
  }
  stage.tiers = std::move(tiers);
  stage.profile.of_stage = stages > 1 && cluster.device_count() > cluster.tiers.front().size;
  return stage;
}

Result<StagedPlan> plan_staged(const Inputs& inputs, const std::vector<PipelineForm>& forms,
                               const PlanOptions& given, const PlanOptions& options,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const ChunkSearch search{inputs, given, options, pins, common, begin, clock};
  Graph step = inputs.model.graph;
  step.kernels = group_kernels(step, inputs.cluster.profile, options.updates);
  AUTOPAR_TRY(seconds, seconds_of_ops(inputs, step, options.updates));
  return Pipelines(search, step, seconds).run(forms);
}

}  // namespace autopar::cli
