#include "planning/pipelines/pinned_plan.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/room.hpp"
#include "search/bound_beside.hpp"

namespace autopar {

bool may_be_put_into_plans(const std::optional<StrategyFile>& pins) {
  return pins && pins->mesh.empty() && !(pins->pins.ops.empty() && pins->pins.values.empty());
}

std::optional<StrategyFile> without_pins(const StrategyFile& pins) {
  StrategyFile bare = pins;
  bare.pins = {};
  const bool is_empty = bare.stage_of_ops.empty() && bare.recompute.empty() &&
                        bare.repeated.empty() && bare.checkpoints.empty();
  return is_empty ? std::nullopt : std::optional(std::move(bare));
}

namespace {

// What the pins are of, and what is so near that it may have to change: ops that share a value,
// that few read, with one of them, and those that do with one of these.
std::vector<char> near_pins(const Graph& graph, const Pins& pins) {
  using tuning::outer::kPinsFewUses, tuning::outer::kPinsNear;
  const auto uses = uses_of(graph);
  std::vector<char> found(graph.ops.size(), 0);
  const auto add_ops_of = [&](ValueId id, std::vector<char>& to) {
    const OpId maker = graph.value(id).producer;
    if (maker.valid()) to[maker.index()] = 1;
    for (const Use& use : uses[id.index()]) to[use.op.index()] = 1;
  };
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    found[o] = static_cast<char>(pins.ops.count(graph.ops[o].name));
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (pins.values.count(graph.values[v].name) == 0) continue;
    add_ops_of(ValueId(static_cast<std::int64_t>(v)), found);
  }
  for (int step = 0; step < kPinsNear; ++step) {
    std::vector<char> wider = found;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (found[o] == 0) continue;
      for (const auto* values : {&graph.ops[o].inputs, &graph.ops[o].outputs}) {
        for (const ValueId id : *values) {
          if (id.valid() && uses[id.index()].size() <= kPinsFewUses) add_ops_of(id, wider);
        }
      }
    }
    found = std::move(wider);
  }
  return found;
}

}  // namespace

Result<std::optional<ChunkPlan>> ChunkPlans::with_pins(const ChunkPlan& chunk) const {
  const Planned& planned = *chunk.planned;
  const Graph& before = planned.inputs->model.graph;
  const std::optional<StrategyFile> pins = pins_of(before);
  if (!pins || (pins->pins.ops.empty() && pins->pins.values.empty())) {
    return std::optional<ChunkPlan>();
  }
  const Mesh& mesh = planned.outcome.strategy.mesh;
  auto inputs = std::make_unique<Inputs>(*planned.inputs);
  AUTOPAR_TRY(common, options_of(to_text(mesh), 0));
  std::map<std::string_view, OpPin> kept;
  for (std::size_t o = 0; o < before.ops.size(); ++o) {
    OpPin& pin = kept[before.ops[o].name];
    pin.assignment.emplace();
    const std::vector<int>& factors = planned.outcome.strategy.assignments[o].factor_of_axis;
    for (std::size_t a = 0; a < factors.size(); ++a) {
      if (factors[a] < 0) continue;
      (*pin.assignment)[mesh.axes[a].name] =
          planned.inputs->rules.rules[o].factors[static_cast<std::size_t>(factors[a])].name;
    }
  }
  PlanOptions options = options_;
  options.searcher = "dp";
  AUTOPAR_TRY(request, request_of(*inputs, pins, options, common));
  request.memory_limit = planned.request->memory_limit;
  request.solve.time_limit = kInfinity;  // little is open
  const Graph& graph = inputs->model.graph;
  const std::vector<char> is_near = near_pins(graph, request.pins);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto same = kept.find(graph.ops[o].name);
    if (is_near[o] != 0 || same == kept.end()) continue;
    request.pins.ops.try_emplace(graph.ops[o].name, same->second);
  }
  AUTOPAR_TRY(outcome, search(request));
  return std::optional(
      chunk.planned_as({std::move(inputs), std::move(request), std::move(outcome)}));
}

Result<PipelinePlan> with_pins(const PipelinePlan& plan, const StagedStep& step,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const ChunkSearch search{*step.inputs, step.given, step.options, pins,
                           common,       begin,      clock,        nullptr};
  const ChunkPlans plans(search, plan.stage);
  PipelinePlan pinned = plan;
  pinned.schedule.lines = pinned.passes;
  std::set<int> changed;
  for (std::size_t c = 0; c < pinned.chunks.size(); ++c) {
    ChunkPlan& chunk = pinned.chunks[c];
    chunk.in_stage = nullptr;
    AUTOPAR_TRY(own, plans.with_pins(chunk));
    if (!own) continue;
    chunk = std::move(*own);
    changed.insert(static_cast<int>(c));
  }
  // What was like one of these is a plan of its own, and others are like that.
  for (std::size_t c = 0; c < pinned.chunks.size(); ++c) {
    ChunkPlan& chunk = pinned.chunks[c];
    if (changed.count(chunk.alike) == 0) continue;
    const int before = chunk.alike;
    for (std::size_t d = c; d < pinned.chunks.size(); ++d) {
      if (pinned.chunks[d].alike == before) pinned.chunks[d].alike = static_cast<int>(c);
    }
    chunk.alike = -1;
  }
  AUTOPAR_TRY(room, room_of(pinned.stage, common));
  AUTOPAR_RETURN_IF_ERROR(price_pipeline(step.inputs->cluster, step.options.updates, room, pinned));
  if (pinned.peak_bytes > room) return infeasible_error("with the pins it does not fit");
  pinned.lower_bound = bound_beside(pinned.lower_bound, pinned.times.makespan);
  return pinned;
}

}  // namespace autopar
