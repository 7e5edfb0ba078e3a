#include "planning/pipelines/plan_stages.hpp"

#include <algorithm>

#include "autopar/report.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/pinned_plan.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/uniform_stages.hpp"
#include "search/bound_beside.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

bool may_be_template(const StagedPlan& plan, const PlanOptions& options) {
  if (!plan.pipeline || options.searcher != "auto" || !options.cuts.empty()) return false;
  const Graph& graph = plan.inputs->model.graph;
  return graph.ops.size() <= kSmallStep && has_backward_pass(graph) &&
         plan.pipeline->gap() > tuning::outer::kWorthTemplates && !plan.pipeline->interrupted;
}

// The fastest that is searched, or a template where that is faster than a small pipeline.
Result<StagedPlan> best_of_stages(const std::vector<StagedStep>& steps,
                                  const std::optional<StrategyFile>& pins,
                                  const CommonOptions& common,
                                  std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  AUTOPAR_TRY(plan, plan_staged(steps, pins, common, begin, clock));
  if (pins || !may_be_template(plan, steps.front().options)) return std::move(plan);
  auto other = plan_uniform_stages(steps, common, begin, clock);
  const PipelinePlan& found = *plan.pipeline;
  if (!other || !other->pipeline || other->pipeline->times.makespan >= found.times.makespan) {
    return std::move(plan);
  }
  PipelinePlan& best = *other->pipeline;
  const std::string words = best.tried.empty() ? "" : ": " + best.tried.front().why;
  best.tried = found.tried;
  best.tried.insert(best.tried.begin(),
                    {best.form, best.times.makespan, best.peak_bytes, "a template" + words});
  best.lower_bound = bound_beside(found.lower_bound, best.times.makespan);
  return std::move(*other);
}

// A pipeline that is planned without the pins, and they are put into it; nothing: there is none, or
// it cannot have them. `without`: takes what it took before.
std::optional<StagedPlan> put_into_plan(const std::vector<StagedStep>& steps,
                                        const std::optional<StrategyFile>& pins,
                                        const CommonOptions& common,
                                        std::chrono::steady_clock::time_point begin,
                                        PhaseClock& clock, Seconds& without) {
  auto plan = best_of_stages(steps, without_pins(*pins), common, begin, clock);
  if (!plan || !plan->pipeline) return {};
  // A template may have a reading of its own.
  const std::int64_t passes = plan->inputs->model.graph.passes;
  const auto same = std::find_if(steps.begin(), steps.end(), [&](const StagedStep& one) {
    return one.inputs->model.graph.passes == passes;
  });
  if (same == steps.end()) return {};
  StagedStep step = *same;
  step.inputs = plan->inputs;
  without = plan->pipeline->times.makespan;
  auto pinned = with_pins(*plan->pipeline, step, pins, common, begin, clock);
  if (!pinned) {
    logging::debug("the plan without the pins takes {}, and cannot have them: {}",
                   format_seconds(without), pinned.error().message);
    return {};
  }
  logging::debug("the plan without the pins takes {}, with them {}", format_seconds(without),
                 format_seconds(pinned->times.makespan));
  plan->pipeline = std::move(*pinned);
  const PipelinePlan& best = *plan->pipeline;
  plan->pipeline->tried.insert(plan->pipeline->tried.begin(),
                               {best.form, best.times.makespan, best.peak_bytes,
                                "with the pins; all others are without them"});
  return std::move(*plan);
}

}  // namespace

Result<StagedPlan> plan_stages(const std::vector<StagedStep>& steps,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const PlanOptions& options = steps.front().options;
  if (is_templates(options.searcher)) return plan_uniform_stages(steps, common, begin, clock);
  const bool is_exact = options.searcher == "auto" || options.searcher == "dp";
  const bool has_meshes = !common.mesh.empty() || options.max_axes != 0;
  if (!is_exact || has_meshes || !may_be_put_into_plans(pins)) {
    return best_of_stages(steps, pins, common, begin, clock);
  }
  Seconds without = 0;
  auto other = put_into_plan(steps, pins, common, begin, clock, without);
  const bool is_small = std::all_of(steps.begin(), steps.end(), [](const StagedStep& step) {
    return step.inputs->model.graph.ops.size() <= kSmallStep;
  });
  const bool is_near =
      other && other->pipeline->times.makespan <= without * (1 + tuning::outer::kPinsCost);
  const bool is_over = interrupt_requested().load() || seconds_since(begin) >= options.time_limit;
  if (other && (is_over || (is_near && !is_small))) return std::move(*other);
  auto plan = best_of_stages(steps, pins, common, begin, clock);
  if (!other) return plan;
  if (!plan) return std::move(*other);
  const auto time_of = [](const StagedPlan& one) {
    return one.pipeline ? one.pipeline->times.makespan : one.single->outcome.cost.time();
  };
  const Seconds bound = other->pipeline->lower_bound;
  StagedPlan& best = time_of(*other) < time_of(*plan) ? *other : *plan;
  if (best.pipeline) {
    const Seconds own = plan->pipeline ? plan->pipeline->lower_bound : 0;
    best.pipeline->lower_bound = bound_of_two(bound, own, time_of(best));
  }
  return std::move(best);
}

}  // namespace autopar
