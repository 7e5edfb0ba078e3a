#include "planning/pipelines/template_plan.hpp"

#include <algorithm>

#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/room.hpp"
#include "planning/pipelines/stage_memory.hpp"
#include "recompute/repeatable.hpp"

namespace autopar {

namespace {

// The chunks of a template, of plans of its units.
class TemplateChunks {
 public:
  // All must live as long.
  static Result<TemplateChunks> of(const TemplateCandidate& candidate, TemplatePlans& plans) {
    for (std::size_t which = 0;; ++which) {
      AUTOPAR_TRY(prices, plans.at(which));
      if (prices == nullptr) break;
    }
    AUTOPAR_TRY(usual, plans.of_usual());
    return TemplateChunks(candidate, plans, std::move(usual));
  }

  // How each chunk is planned first, in its part of the room of its stage.
  std::vector<ChunkHint> hints(const PipelineSchedule& schedule, Bytes room) const {
    const std::vector<std::int64_t> flying = in_flight(schedule).of_chunk;
    std::vector<ChunkHint> hints(flying.size());
    for (const auto& [stage, chunks] : chunks_of_stages(schedule)) {
      std::vector<SharingUnits> sharing;
      for (const std::size_t c : chunks) sharing.push_back({units_of(c), flying[c]});
      const SharedRoom shared = shared_room(usual_, sharing, static_cast<double>(room));
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        hints[chunks[i]] = hint_of(chunks[i], flying[chunks[i]], shared.bytes[i]);
      }
    }
    return hints;
  }

 private:
  TemplateChunks(const TemplateCandidate& candidate, TemplatePlans& plans,
                 std::vector<UnitPlan> usual)
      : candidate_(&candidate), plans_(&plans), usual_(std::move(usual)) {}

  const StepUnits& units() const { return candidate_->step->units->units(); }
  std::size_t first_of(std::size_t chunk) const { return candidate_->priced.ends[chunk]; }
  double units_of(std::size_t chunk) const {
    return static_cast<double>(first_of(chunk + 1) - first_of(chunk));
  }

  ChunkHint hint_of(std::size_t chunk, std::int64_t flying, double room) const {
    ChunkHint hint;
    hint.room = room;
    hint.mesh = to_text(plans_->mesh());
    hint.is_template = true;
    for (std::size_t u = first_of(chunk); u < first_of(chunk + 1); ++u) {
      hint.has_other_kinds |= units().kind_of[u] != units().usual;
    }
    const auto mix = best_mix(usual_, {units_of(chunk), flying, room});
    hint.is_fastest = mix && mix->is_fastest;
    hint.parts = [this, chunk, flying](MixAsked asked,
                                       const std::string&) -> Result<std::optional<HintedParts>> {
      asked.units = units_of(chunk);
      asked.in_flight = flying;
      const auto mix = best_mix(usual_, asked);
      if (!mix) return std::optional<HintedParts>();
      return parts_of(chunk, *mix);
    };
    return hint;
  }

  // Units that take the larger plan come first.
  Result<std::optional<HintedParts>> parts_of(std::size_t chunk, const UnitMix& mix) const {
    HintedParts parts;
    parts.recompute = {{"", candidate_->wanted.recompute}};
    parts.mesh = to_text(plans_->mesh());
    parts.weights = plans_->weights();
    parts.mix = mix;
    parts.wanted = candidate_->wanted.parallel;
    AUTOPAR_TRY(smaller, plans_->like(mix.smaller));
    auto larger = smaller;
    if (mix.of_larger > 0) {
      AUTOPAR_TRY(found, plans_->like(mix.larger));
      larger = std::move(found);
    }
    const double until = static_cast<double>(first_of(chunk)) + mix.of_larger;
    parts.chosen = chosen_of(units(), [smaller, larger, until](const StepUnits::Place& place) {
      return (static_cast<double>(place.unit) < until ? larger : smaller)[place.kind].get();
    });
    return std::optional(std::move(parts));
  }

  const TemplateCandidate* candidate_;
  TemplatePlans* plans_;
  std::vector<UnitPlan> usual_;
};

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
  AUTOPAR_TRY(schedule, schedule_of(candidate.form, graph));
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
  AUTOPAR_TRY(room, room_of(plan.stage, common));
  AUTOPAR_TRY(of_units, TemplateChunks::of(candidate, *plans));
  plan.passes = plan.schedule.lines;
  const std::shared_ptr<const Inputs> inputs = step_of(candidate);
  const ChunkSearch search{*inputs,       asked.given,
                           asked.options, none,
                           common,        begin,
                           clock,         std::make_shared<UnitShelf>(tuning::units::kBytesAtHand)};
  AUTOPAR_TRY(chunk_plans, ChunkPlans(search, plan.stage)
                               .of(std::move(chunks.chunks), plan.schedule,
                                   of_units.hints(plan.schedule, room), kInfinity, true));
  plan.take(std::move(chunk_plans));
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
