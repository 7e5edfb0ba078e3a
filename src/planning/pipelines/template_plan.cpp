#include "planning/pipelines/template_plan.hpp"

#include <algorithm>

#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/room.hpp"
#include "recompute/repeatable.hpp"

namespace autopar {

namespace {

// From the plans that were found to fit on, to those with less in memory.
Result<std::optional<HintedParts>> parts_of(const TemplateCandidate& candidate,
                                            TemplatePlans& plans, std::size_t which) {
  AUTOPAR_TRY(prices, plans.at(candidate.which + which));
  if (prices == nullptr) return std::optional<HintedParts>();
  HintedParts parts;
  parts.recompute = {{"", candidate.wanted.recompute}};
  parts.mesh = to_text(plans.mesh());
  parts.weights = plans.weights();
  parts.wanted = candidate.wanted.parallel;
  parts.chosen = chosen_of(candidate.step->units->units(),
                           [prices](const StepUnits::Place& place) -> const UnitParts* {
                             return (*prices)[place.kind].parts.get();
                           });
  return std::optional(std::move(parts));
}

// What the forward pass hands on from one unit to others.
std::vector<std::string> handed_on(const Graph& graph, const std::vector<OpId>& cuts) {
  const Repeatable repeatable(graph);
  std::vector<std::size_t> last(graph.values.size());  // forward op that reads it
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::kForward) continue;
    for (const ValueId id : graph.ops[o].inputs) {
      if (id.valid()) last[id.index()] = o;
    }
  }
  std::vector<std::string> names;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (!value.producer.valid() || repeatable.is_ready(ValueId(static_cast<std::int64_t>(v)))) {
      continue;
    }
    const bool crosses = std::any_of(cuts.begin(), cuts.end(), [&](OpId cut) {
      return value.producer.index() < cut.index() && cut.index() <= last[v];
    });
    if (crosses) names.push_back(value.name);
  }
  return names;
}

// The step, of which all of each unit is repeated from what enters it where all is repeated.
std::shared_ptr<const Inputs> step_of(const TemplateCandidate& candidate) {
  const OpenStep& step = *candidate.step;
  const auto& asked = step.asked->inputs;
  if (candidate.wanted.recompute != Recompute::kFull || !asked->checkpoints.empty()) return asked;
  auto inputs = std::make_shared<Inputs>(*asked);
  inputs->checkpoints = handed_on(step.inputs.model.graph, step.units->units().cuts);
  return inputs;
}

// Its chunks are made of its units.
Result<StagedPlan> pipeline_plan_of(const TemplateCandidate& candidate, const CommonOptions& common,
                                    std::chrono::steady_clock::time_point begin,
                                    PhaseClock& clock) {
  const OpenStep& step = *candidate.step;
  const StagedStep& asked = *step.asked;
  const std::optional<StrategyFile> none;  // pins
  PipelinePlan plan;
  plan.form = candidate.form;
  AUTOPAR_TRY(stage, stage_of(step.inputs.cluster, candidate.form.stages));
  plan.stage = std::move(stage);
  const Graph& graph = step.inputs.model.graph;
  AUTOPAR_TRY(schedule, schedule_of(candidate.form, graph.passes));
  plan.schedule = std::move(schedule);
  const std::vector<std::size_t>& ends = candidate.priced.ends;
  std::vector<OpId> cuts;
  for (std::size_t c = 1; c + 1 < ends.size(); ++c) {
    cuts.push_back(step.units->units().cuts[ends[c] - 1]);
    plan.cut_ops.push_back(graph.op(cuts.back()).name);
  }
  AUTOPAR_TRY(chunks, chunks_of(graph, cuts, asked.options.updates));
  plan.handed = std::move(chunks.handed);
  const InFlight flying = in_flight(plan.schedule);
  for (std::size_t c = 0; c < chunks.chunks.size(); ++c) {
    chunks.chunks[c].graph.in_flight = flying.of_chunk[c];
  }
  AUTOPAR_TRY(level, step.units->level(candidate.wanted.recompute));
  AUTOPAR_TRY(plans, TemplatePlans::of(*step.units, *level, plan.stage, candidate.wanted,
                                       candidate.form.stages));
  ChunkHint hint;
  hint.of_template = [&](std::size_t which) { return parts_of(candidate, *plans, which); };
  plan.passes = plan.schedule.lines;
  const std::shared_ptr<const Inputs> inputs = step_of(candidate);
  const ChunkSearch search{*inputs, asked.given, asked.options, none, common, begin, clock};
  AUTOPAR_TRY(chunk_plans, ChunkPlans(search, plan.stage)
                               .of(std::move(chunks.chunks), plan.schedule,
                                   std::vector<ChunkHint>(ends.size() - 1, hint), kInfinity, true));
  plan.take(std::move(chunk_plans));
  AUTOPAR_TRY(room, room_of(plan.stage, common));
  AUTOPAR_RETURN_IF_ERROR(price_pipeline(step.inputs.cluster, asked.options.updates, room, plan));
  StagedPlan staged;
  staged.pipeline = std::move(plan);
  staged.inputs = inputs;
  return staged;
}

Result<StagedPlan> single_of(const TemplateCandidate& candidate, const CommonOptions& common,
                             std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const std::optional<StrategyFile> none;  // pins
  const StagedStep& asked = *candidate.step->asked;
  const auto with = [&](const PlanOptions& from) {
    PlanOptions options = from;
    options.searcher = "uniform:" + to_text(candidate.wanted.parallel);
    options.recompute = name_of(candidate.wanted.recompute);
    options.stages = "1";
    return options;
  };
  StagedStep step{asked.inputs, with(asked.given), with(asked.options), {candidate.form}};
  step.forms.front().schedule.clear();
  return plan_staged({std::move(step)}, none, common, begin, clock);
}

}  // namespace

Result<StagedPlan> plan_of(const TemplateCandidate& candidate, const CommonOptions& common,
                           std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  return candidate.form.stages == 1 ? single_of(candidate, common, begin, clock)
                                    : pipeline_plan_of(candidate, common, begin, clock);
}

}  // namespace autopar
