// search --stages: a training step as a pipeline. Its chunks are planned one by one, each on the
// devices of its stage, and the schedule says when each runs.
#pragma once

#include "autopar/pipeline.hpp"
#include "autopar/stages.hpp"
#include "planning/parts_of_step.hpp"
#include "planning/pipelines/chunk_bytes.hpp"

namespace autopar {

struct ChunkPlan {
  std::shared_ptr<const Planned> planned;
  std::vector<std::string> reduce_ops;
  std::vector<std::string> first_and_last;  // forward ops of its own
  std::vector<char>
      weight_ops;  // of W, per op of the plan's graph; empty: the backward pass is one
  int alike = -1;  // the chunk that was searched, where this one is the same but for names; else -1
  std::int64_t in_flight = 1;  // micro-batches
  // The same of all that are alike.
  std::shared_ptr<KnownChunkBytes> bytes = std::make_shared<KnownChunkBytes>();
  ChunkCost cost;  // of one pass, and of the update, with what is sent
  // Where other chunks are on its stage: what it costs with its part of what they leave.
  std::shared_ptr<const StrategyCost> in_stage = nullptr;
  const StrategyCost& strategy_cost() const {
    return in_stage != nullptr ? *in_stage : planned->outcome.cost;
  }
  // The same chunk with another plan, like no other chunk's.
  ChunkPlan planned_as(Planned other) const {
    ChunkPlan found = *this;
    found.planned = std::make_shared<const Planned>(std::move(other));
    found.bytes = std::make_shared<KnownChunkBytes>();
    found.in_stage = nullptr;
    found.alike = -1;
    return found;
  }
};

// How a step may run as a pipeline.
struct PipelineForm {
  std::int64_t stages = 1;
  std::int64_t chunks_per_stage = 1;
  std::string schedule;            // name, or the file
  std::int64_t micro_batches = 0;  // where several numbers are tried; 0: as given
};
// "4 stages, interleaved, 2 chunks each", "1 stage, 4 micro-batches"
std::string to_text(const PipelineForm& form);

// What became of a form.
struct PipelineTrial {
  PipelineForm form;
  Seconds seconds = 0;  // 0: there is no plan, for `why`
  Bytes peak_bytes = 0;
  std::string why;
  Seconds bound = 0;  // no plan of it takes less, for which it was not searched; 0: it was
};

struct PipelinePlan {
  PipelineForm form;
  Cluster stage;                     // the devices of one stage
  std::vector<StepLine> passes;      // as they are written
  bool has_own_passes = false;       // they are not quite those that the form's schedule names
  std::vector<std::string> cut_ops;  // before these the step is cut
  PipelineSchedule schedule;         // with R and U
  std::vector<ChunkPlan> chunks;
  std::vector<Handed> handed;
  ScheduleTimes times;
  std::vector<Bytes> stage_bytes;         // memory per device, by stage
  Bytes peak_bytes = 0, upper_bytes = 0;  // of the fullest stage
  std::vector<PipelineTrial> tried;       // this one among them
  // No pipeline of the forms that were asked for, cut at the places that are looked at, nor a plan
  // without stages that was looked for, is faster; 0: not known.
  Seconds lower_bound = 0;
  bool interrupted = false;  // by the time limit or a signal
  double gap() const { return 1 - lower_bound / times.makespan; }
  // Chunks as ChunkPlans::of() has them, which may have changed the schedule.
  void take(std::vector<ChunkPlan> planned) {
    chunks = std::move(planned);
    has_own_passes = schedule.lines != passes;
    passes = schedule.lines;
  }
};

// The cluster without what its outermost tiers give to stages. Errors (kUsage): the number of
// stages does not divide its tiers, outermost first.
Result<Cluster> stage_of(const Cluster& cluster, std::int64_t stages);

// What --stages, --chunks and --schedule ask for, for a step of so many micro-batches. Errors
// (kUsage, kInput): no such number or schedule; a file that is no schedule.
Result<std::vector<PipelineForm>> asked_forms(const PlanOptions& options, const Inputs& inputs);

// A step of one number of micro-batches, and which forms of it are tried. `given`: the options by
// which it was read, `options` the same with the names of what is written; both with that number.
struct StagedStep {
  std::shared_ptr<const Inputs> inputs;
  PlanOptions given, options;
  std::vector<PipelineForm> forms;
};

// A plan without stages, or a faster one that is made of plans of like parts of the step, such as
// its layers, which may repeat differently (PipelineStep::better_of_units). `given`: the options by
// which to read the model again. Errors: of reading it and of the searches.
Result<Planned> better_of_units(Planned best, const PlanOptions& given, const PlanOptions& options,
                                const std::optional<StrategyFile>& pins,
                                const CommonOptions& common,
                                std::chrono::steady_clock::time_point begin, PhaseClock& clock);

// What is fastest: a pipeline, or, where form {1} was asked for, a plan without stages.
struct StagedPlan {
  std::optional<PipelinePlan> pipeline;
  std::optional<Planned> single;
  std::shared_ptr<const Inputs> inputs;  // of its step
};

// The fastest of the forms of all steps, the likeliest first; those that cannot be faster, or are
// not likely to be, are left out.
// Plans without stages are searched on the meshes that stages have, of data and tensor parallelism.
// Errors: where one form alone is asked for, its own: of cutting the step, of the schedule, and of
// the searches, with the chunk; else (kInfeasible) what was tried.
Result<StagedPlan> plan_staged(std::vector<StagedStep> steps,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock);

// What a pipeline takes whose chunks are planned: the rest of it, of its form, stage, passes,
// chunks and handed values.
Status price_pipeline(const Cluster& cluster, const std::string& updates, Bytes room,
                      PipelinePlan& plan);
// The innermost tier that a stage does not fill.
const Tier& tier_between(const Cluster& cluster, const Cluster& stage);

// A pipeline as a strategy file has it. `inputs` are of the step that the file is of. Errors
// (kInput) name the file: stages that are not of this cluster, ops that are not of this step; else
// as plan_staged().
Result<PipelinePlan> apply_pipeline(const StrategyFile& file, const Inputs& inputs,
                                    const PlanOptions& options, const CommonOptions& common);

}  // namespace autopar
