#include "cli/pipeline_plan.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "autopar/kernels.hpp"
#include "cli/chunk_cost.hpp"
#include "cli/chunk_plans.hpp"
#include "cli/pipeline_forms.hpp"

namespace autopar::cli {

namespace {

// Chunks whose backward pass has no two parts have it where the first part stands.
void join_backward(PipelineSchedule& schedule, const std::vector<ChunkPlan>& chunks) {
  for (StepLine& line : schedule.lines) {
    const auto is_whole = [&](const StepAction& action) {
      return chunks[static_cast<std::size_t>(action.chunk)].weight_ops.empty();
    };
    std::erase_if(line, [&](const StepAction& action) {
      return action.phase == StepPhase::kWeightGradients && is_whole(action);
    });
    for (StepAction& action : line) {
      const bool is_part = action.phase == StepPhase::kInputGradients;
      if (is_part && is_whole(action)) action.phase = StepPhase::kBackward;
    }
  }
}

class Pipelines {
 public:
  Pipelines(const ChunkSearch& search, Seconds best)
      : search_(search), best_(best), step_(search.whole.model.graph) {}

  Result<PipelinePlan> run(const std::vector<PipelineForm>& forms) {
    step_.kernels = group_kernels(step_, search_.whole.cluster.profile, search_.options.updates);
    AUTOPAR_TRY(seconds, seconds_of_ops(search_.whole, step_));
    seconds_ = std::move(seconds);
    std::vector<Cut> cuts;
    for (const PipelineForm& form : forms) {
      auto cut = cut_for(form);
      if (cut) {
        cuts.push_back(std::move(*cut));
      } else if (forms.size() == 1) {
        return cut.error();
      } else {
        tried_.push_back({form, 0, 0, cut.error().message});
      }
    }
    std::stable_sort(cuts.begin(), cuts.end(),
                     [](const Cut& a, const Cut& b) { return a.bound < b.bound; });
    for (Cut& cut : cuts) {
      if (cut.bound >= best_time()) {
        tried_.push_back(
            {cut.form, 0, 0,
             "not searched: its compute alone, evenly split, takes " + format_seconds(cut.bound)});
        continue;
      }
      auto plan = planned(cut);
      if (!plan) {
        if (forms.size() == 1 || plan.error().code == ErrorCode::kInput) return plan.error();
        tried_.push_back({cut.form, 0, 0, plan.error().message});
        continue;
      }
      tried_.push_back({cut.form, plan->times.makespan, plan->peak_bytes, ""});
      if (plan->times.makespan < best_time()) found_ = std::move(*plan);
    }
    if (!found_) return infeasible_error(why_none());
    found_->tried = std::move(tried_);
    return std::move(*found_);
  }

 private:
  struct Cut {
    PipelineForm form;
    Cluster stage;
    PipelineSchedule schedule;
    std::vector<OpId> cuts;
    Seconds bound = 0;  // on the time of any plan of these chunks
  };

  Seconds best_time() const { return found_ ? found_->times.makespan : best_; }

  std::string why_none() const {
    std::string text = best_ < kInfinity ? "no pipeline is faster" : "no pipeline was found";
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
    AUTOPAR_TRY(cuts, cuts_of(cut, chunks));
    cut.cuts = std::move(cuts);
    AUTOPAR_TRY(bound, bound_of(cut));
    cut.bound = bound;
    return cut;
  }

  Result<std::vector<OpId>> cuts_of(const Cut& cut, std::size_t chunks) const {
    const std::string& names = search_.options.cuts;
    if (!names.empty()) return named_cuts(names, step_, chunks);
    std::vector<Seconds> seconds(seconds_.forward);
    for (std::size_t o = 0; o < seconds.size(); ++o) seconds[o] += seconds_.backward[o];
    return balanced_cuts(step_, static_cast<int>(chunks), seconds,
                         between(cut.stage).bandwidth_bytes_per_s, search_.options.updates);
  }

  // Compute alone, evenly split over the devices of each stage. What a weight gradient may be put
  // off for is not known here: all of a backward pass in two parts, for once.
  Result<Seconds> bound_of(const Cut& cut) const {
    std::vector<ChunkCost> costs(cut.schedule.stage_of_chunk.size());
    const auto devices = static_cast<double>(cut.stage.device_count());
    std::size_t chunk = 0;
    for (std::size_t o = 0; o < step_.ops.size(); ++o) {
      if (chunk < cut.cuts.size() && o == cut.cuts[chunk].index()) ++chunk;
      costs[chunk].steady.forward += seconds_.forward[o] / devices;
      costs[chunk].steady.backward += seconds_.backward[o] / devices;
    }
    for (ChunkCost& cost : costs) cost.steady.weight_gradients = cost.steady.backward;
    AUTOPAR_TRY(times, simulate_schedule(cut.schedule, costs));
    return times.makespan;
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
    ChunkPlans& plans = plans_.try_emplace(cut.form.stages, search_, plan.stage).first->second;
    AUTOPAR_TRY(chunk_plans, plans.of(std::move(chunks.chunks), plan.schedule.stage_of_chunk));
    plan.chunks = std::move(chunk_plans);
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) price(plan, c);
    join_backward(plan.schedule, plan.chunks);
    const bool reduces =
        std::any_of(plan.chunks.begin(), plan.chunks.end(),
                    [](const ChunkPlan& chunk) { return !chunk.reduce_ops.empty(); });
    add_updates(plan.schedule, reduces);
    if (reduces) drop_missing_reductions(plan);
    std::vector<ChunkCost> costs;
    for (const ChunkPlan& chunk : plan.chunks) costs.push_back(chunk.cost);
    AUTOPAR_TRY(times, simulate_schedule(plan.schedule, costs));
    plan.times = std::move(times);
    add_memory(plan);
    return plan;
  }

  void price(PipelinePlan& plan, std::size_t c) const {
    ChunkPlan& chunk = plan.chunks[c];
    const auto chunk_number = static_cast<std::int64_t>(c);
    bool is_apart = false;
    for (const StepLine& line : plan.schedule.lines) {
      is_apart |= std::any_of(line.begin(), line.end(), [&](const StepAction& action) {
        return action.chunk == chunk_number && action.phase == StepPhase::kWeightGradients;
      });
    }
    if (is_apart) chunk.weight_ops = two_parts(chunk.planned->request->graph);
    chunk.cost = chunk_cost(*chunk.planned, chunk.weight_ops);
    chunk.cost.send_forward = sent_by(plan, c, true);
    chunk.cost.send_backward = sent_by(plan, c, false);
  }

  // Empty where one of the parts would be.
  std::vector<char> two_parts(const Graph& graph) const {
    std::vector<char> weights = weight_gradient_ops(graph, search_.options.updates);
    bool has_weights = false, has_inputs = false;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (graph.ops[o].phase != Phase::kBackward) continue;
      (weights[o] != 0 ? has_weights : has_inputs) = true;
    }
    if (!has_weights || !has_inputs) weights.clear();
    return weights;
  }

  // Each rank sends its part of what it has to the rank of the same place.
  Seconds sent_by(const PipelinePlan& plan, std::size_t c, bool forward) const {
    const Planned& planned = *plan.chunks[c].planned;
    const Graph& graph = planned.request->graph;
    double bytes = 0;
    for (const Handed& handed : plan.handed) {
      if (!handed.in_pass || handed.from != static_cast<int>(c)) continue;
      const bool is_forward = handed.to.back() > handed.from;
      if (is_forward != forward) continue;
      for (ValueId id : graph.outputs) {
        const Value& value = graph.value(id);
        if (value.name != handed.value) continue;
        const Spec& spec = planned.outcome.strategy.values[id.index()].output;
        bytes += static_cast<double>(
            local_bytes(spec, value.shape, value.dtype, planned.outcome.strategy.mesh));
      }
    }
    if (bytes == 0) return 0;
    const Tier& tier = between(plan.stage);
    return tier.latency_s + bytes / tier.bandwidth_bytes_per_s;
  }

  // The innermost tier that a stage does not fill.
  const Tier& between(const Cluster& stage) const {
    const std::vector<Tier>& tiers = search_.whole.cluster.tiers;
    std::int64_t size = 1;
    for (const Tier& tier : tiers) {
      size *= tier.size;
      if (size > stage.device_count()) return tier;
    }
    return tiers.back();
  }

  static void drop_missing_reductions(PipelinePlan& plan) {
    for (StepLine& line : plan.schedule.lines) {
      std::erase_if(line, [&](const StepAction& action) {
        return action.phase == StepPhase::kReduce &&
               plan.chunks[static_cast<std::size_t>(action.chunk)].reduce_ops.empty();
      });
    }
  }

  static void add_memory(PipelinePlan& plan) {
    plan.stage_bytes.assign(static_cast<std::size_t>(plan.form.stages), 0);
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      plan.stage_bytes[static_cast<std::size_t>(plan.schedule.stage_of_chunk[c])] +=
          plan.chunks[c].planned->outcome.cost.memory.total;
    }
    plan.peak_bytes = *std::max_element(plan.stage_bytes.begin(), plan.stage_bytes.end());
    plan.upper_bytes = plan.stage.profile.upper_memory(plan.peak_bytes);
  }

  const ChunkSearch& search_;
  const Seconds best_;  // without stages
  Graph step_;          // with kernels
  OpSeconds seconds_;
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
                                   Seconds best, const PlanOptions& given,
                                   const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common,
                                   std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const ChunkSearch search{inputs, given, options, pins, common, begin, clock};
  return Pipelines(search, best).run(forms);
}

}  // namespace autopar::cli
