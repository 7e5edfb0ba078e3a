// search --stages: a training step as a pipeline. Its chunks are planned one by one, each on the
// devices of its stage, and the schedule says when each runs.
#pragma once

#include "autopar/pipeline.hpp"
#include "autopar/stages.hpp"
#include "cli/forms.hpp"

namespace autopar::cli {

struct ChunkPlan {
  std::unique_ptr<Planned> planned;
  std::vector<std::string> reduce_ops;
  std::vector<std::string> first_and_last;  // forward ops of its own
  int alike = -1;  // the chunk that was searched, where this one is the same but for names; else -1
  ChunkCost cost;  // of one pass, and of the update, with what is sent
};

struct PipelinePlan {
  Cluster stage;  // the devices of one stage
  std::int64_t stages = 1;
  ScheduleKind kind = ScheduleKind::k1F1B;
  PipelineSchedule schedule;  // with R and U
  std::vector<ChunkPlan> chunks;
  std::vector<Handed> handed;
  ScheduleTimes times;
  Bytes peak_bytes = 0, upper_bytes = 0;  // of the fullest stage
};

// The cluster without what its outermost tiers give to stages. Errors (kUsage): the number of
// stages does not divide its tiers, outermost first.
Result<Cluster> stage_of(const Cluster& cluster, std::int64_t stages);

// Errors: of cutting the step, of the schedule, and of the searches, with the chunk.
Result<PipelinePlan> plan_pipeline(std::unique_ptr<Inputs> inputs, const PlanOptions& given,
                                   const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common,
                                   std::chrono::steady_clock::time_point begin, PhaseClock& clock);

// The programs of all chunks, step.json and schedule.csv, strategy.json, report.json; the table.
Status write_pipeline(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options,
                      const CommonOptions& common);

}  // namespace autopar::cli
