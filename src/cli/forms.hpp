// The outer loop of a search: a model may be planned in several forms, with ops repeated or not,
// and a training step in several numbers of passes. Which are tried say --recompute and
// --micro-batches.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "cli/outputs.hpp"

namespace autopar::cli {

// The best plan for what was read, and the request that it answers.
struct Planned {
  std::unique_ptr<Inputs> inputs;
  std::optional<SearchRequest> request;
  SearchOutcome outcome;
};

// `inputs` in the first form to try; `given`: by which it is read again in others, `options` the
// same with the names of what is written. The time limit counts from `begin`. `cutoff`: plans that
// take longer are of no use.
// Errors: of the search; where nothing fits, what was tried.
Result<Planned> best_of_forms(std::unique_ptr<Inputs> inputs, const PlanOptions& given,
                              const PlanOptions& options, const std::optional<StrategyFile>& pins,
                              const CommonOptions& common,
                              std::chrono::steady_clock::time_point begin, PhaseClock& clock,
                              Seconds cutoff = kInfinity);

// What no plan of a model is faster than, with all memory and nothing repeated, and how long the
// streams of the best plan that was found are busy (with a profile). `weights`: those of the
// streams (see SearchRequest); none without a profile, or to try several. Errors: of the search.
struct LeastTime {
  Seconds bound = 0;
  std::optional<StreamTimes> busy;
};
Result<LeastTime> least_time(Inputs& inputs, const PlanOptions& options,
                             const std::optional<StrategyFile>& pins, const CommonOptions& common,
                             const std::optional<StreamTimes>& weights);

// The plan of a model that is another one but for names: of what was read of it.
Result<Planned> planned_like(std::unique_ptr<Inputs> inputs, const Planned& like,
                             const PlanOptions& options, const std::optional<StrategyFile>& pins,
                             const CommonOptions& common);

}  // namespace autopar::cli
