// The outer loop of a search: a model may be planned in several forms, with ops repeated or not,
// and a training step in several numbers of passes. Which are tried say --recompute and
// --micro-batches.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "planning/inputs.hpp"
#include "planning/phase_clock.hpp"

namespace autopar {

// The best plan for what was read, and the request that it answers.
struct Planned {
  std::unique_ptr<Inputs> inputs;
  std::optional<SearchRequest> request;
  SearchOutcome outcome;
};

// What a search of a part of a step is for.
struct Enough {
  Seconds cutoff = kInfinity;  // plans that take longer are of no use
  double gap = 0;              // a plan that is so near its bound is as good as a better one
};

// A plan that may be found otherwise, in whatever form of so many passes; the given one where that
// is no slower.
using OtherPlan = std::function<Result<Planned>(Planned best)>;

// The request for the model as it is now, ops repeated or not, with the hub ops for its pins.
// Errors: of the options and pins.
Result<SearchRequest> request_of(Inputs& inputs, const std::optional<StrategyFile>& pins,
                                 const PlanOptions& options, const CommonOptions& common);

// `inputs` in the first form to try; `given`: by which it is read again in others, `options` the
// same with the names of what is written. The time limit counts from `begin`.
// `other`: asked where the memory limit makes a plan dearer and further above its bound than
// tuning::outer::kSingleGap, or --gap; what it finds stands for all forms of
// as many passes. Errors: of the search; where nothing fits, what was tried.
Result<Planned> best_of_forms(std::unique_ptr<Inputs> inputs, const PlanOptions& given,
                              const PlanOptions& options, const std::optional<StrategyFile>& pins,
                              const CommonOptions& common,
                              std::chrono::steady_clock::time_point begin, PhaseClock& clock,
                              const Enough& enough = {}, const OtherPlan& other = {});

}  // namespace autopar
