#include "cli/pipeline_plan.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "autopar/kernels.hpp"
#include "cli/chunk_cost.hpp"
#include "cli/chunk_plans.hpp"
#include "cli/pinned_stages.hpp"
#include "cli/pipeline_bound.hpp"
#include "cli/pipeline_forms.hpp"

namespace autopar::cli {

namespace {

class Pipelines {
 public:
  // `step`: with kernels.
  Pipelines(const ChunkSearch& search, const SinglePlan& single, const Graph& step,
            const OpSeconds& seconds)
      : search_(search),
        single_(single),
        step_(step),
        seconds_(seconds),
        bounds_(search, step, seconds),
        lower_bound_(single.lower_bound) {}

  Result<PipelinePlan> run(const std::vector<PipelineForm>& forms) {
    is_one_ = forms.size() == 1;
    AUTOPAR_TRY(cuts, cuts_for(forms));
    for (Cut& cut : cuts) AUTOPAR_RETURN_IF_ERROR(try_form(cut));
    if (!found_) return infeasible_error(why_none());
    found_->tried = std::move(tried_);
    found_->lower_bound = std::min(lower_bound_, found_->times.makespan);
    return std::move(*found_);
  }

 private:
  struct Cut {
    PipelineForm form;
    Cluster stage;
    PipelineSchedule schedule;
    std::vector<OpId> cuts;
    bool is_pinned = false;
    Seconds compute = 0;  // no plan of this form is faster
  };

  // Those with the least bound first.
  Result<std::vector<Cut>> cuts_for(const std::vector<PipelineForm>& forms) {
    std::vector<Cut> cuts;
    for (const PipelineForm& form : forms) {
      auto cut = cut_for(form);
      if (cut) {
        cuts.push_back(std::move(*cut));
      } else if (is_one_) {
        return cut.error();
      } else {
        tried_.push_back({form, 0, 0, cut.error().message});
      }
    }
    std::stable_sort(cuts.begin(), cuts.end(),
                     [](const Cut& a, const Cut& b) { return a.compute < b.compute; });
    return cuts;
  }

  Status try_form(Cut& cut) {
    const PipelineForm form = cut.form;
    Seconds bound = cut.compute;
    if (bound < best_time() && bounds_.covers(cut.cuts)) {
      AUTOPAR_TRY(searched,
                  bounds_.of(cut.schedule, cut.stage, cut.is_pinned ? &cut.cuts : nullptr));
      bound = std::max(bound, searched);
    }
    lower_bound_ = std::min(lower_bound_, bound);
    if (bound >= best_time()) {
      tried_.push_back(
          {form, 0, 0, "not searched: no plan takes less than " + format_seconds(bound)});
      return Ok{};
    }
    auto plan = planned(cut);
    if (!plan) {
      if (is_one_ || plan.error().code == ErrorCode::kInput) return plan.error();
      tried_.push_back({form, 0, 0, plan.error().message});
      return Ok{};
    }
    tried_.push_back({form, plan->times.makespan, plan->peak_bytes, ""});
    if (plan->times.makespan < best_time()) found_ = std::move(*plan);
    return Ok{};
  }

  Seconds best_time() const { return found_ ? found_->times.makespan : single_.best; }

  std::string why_none() const {
    std::string text = single_.best < kInfinity ? "no pipeline is faster" : "no pipeline was found";
    for (const PipelineTrial& trial : tried_) {
      text += "; " + to_text(trial.form) + ": " +
              (trial.why.empty() ? format_seconds(trial.seconds) : trial.why);
    }
    return text;
  }

  Result<Cut> cut_for(const PipelineForm& form) const {
    Cut cut;
    cut.form = form;
    AUTOPAR_TRY(stage, stage_of(search_.whole.cluster, form.stages));
    cut.stage = std::move(stage);
    AUTOPAR_TRY(schedule, schedule_of(form, step_.passes));
    cut.schedule = std::move(schedule);
    const std::size_t chunks = cut.schedule.stage_of_chunk.size();
    std::vector<Seconds> seconds(seconds_.forward);
    for (std::size_t o = 0; o < seconds.size(); ++o) seconds[o] += seconds_.backward[o];
    cut.is_pinned = search_.pins && !search_.pins->stage_of_ops.empty();
    if (cut.is_pinned) {
      AUTOPAR_TRY(cuts, pinned_cuts(form));
      cut.cuts = std::move(cuts);
    } else {
      AUTOPAR_TRY(
          cuts, balanced_cuts(step_, static_cast<int>(chunks), seconds,
                              tier_between(search_.whole.cluster, cut.stage).bandwidth_bytes_per_s,
                              search_.options.updates));
      cut.cuts = std::move(cuts);
    }
    if (!cut.is_pinned && bounds_.covers(cut.cuts)) {
      cut.compute = bounds_.of_compute(cut.schedule, cut.stage, nullptr);
    }
    return cut;
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

  Result<PipelinePlan> planned(Cut& cut) {
    PipelinePlan plan;
    plan.form = cut.form;
    plan.stage = std::move(cut.stage);
    plan.schedule = std::move(cut.schedule);
    AUTOPAR_TRY(chunks, chunks_of(step_, cut.cuts, search_.options.updates));
    plan.handed = std::move(chunks.handed);
    const InFlight flying = in_flight(plan.schedule);
    for (std::size_t c = 0; c < chunks.chunks.size(); ++c) {
      chunks.chunks[c].graph.in_flight = flying.of_chunk[c];
    }
    for (const OpId op : cut.cuts) plan.cut_ops.push_back(step_.op(op).name);
    plan.passes = plan.schedule.lines;
    ChunkPlans& plans = plans_.try_emplace(cut.form.stages, search_, plan.stage).first->second;
    AUTOPAR_TRY(chunk_plans, plans.of(std::move(chunks.chunks), plan.schedule.stage_of_chunk));
    plan.chunks = std::move(chunk_plans);
    AUTOPAR_RETURN_IF_ERROR(price_pipeline(search_.whole.cluster, search_.options.updates, plan));
    return plan;
  }

  const ChunkSearch& search_;
  const SinglePlan& single_;
  const Graph& step_;
  const OpSeconds& seconds_;
  PipelineBounds bounds_;
  Seconds lower_bound_ = 0;
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
  return stage;
}

Result<PipelinePlan> plan_pipeline(const Inputs& inputs, const std::vector<PipelineForm>& forms,
                                   const SinglePlan& single, const PlanOptions& given,
                                   const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common,
                                   std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const ChunkSearch search{inputs, given, options, pins, common, begin, clock};
  Graph step = inputs.model.graph;
  step.kernels = group_kernels(step, inputs.cluster.profile, options.updates);
  AUTOPAR_TRY(seconds, seconds_of_ops(inputs, step));
  return Pipelines(search, single, step, seconds).run(forms);
}

}  // namespace autopar::cli
