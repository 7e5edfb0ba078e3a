// A given strategy on its model and cluster, priced: what apply, price and fit begin with.
#pragma once

#include <memory>
#include <optional>

#include "autopar/search.hpp"
#include "planning/inputs.hpp"

namespace autopar {

struct Applied {
  std::unique_ptr<Inputs> inputs;
  std::optional<SearchRequest> request;
  SearchOutcome outcome;
};

// `options.strategy_file` says which; a strategy of a training step makes `options` those of one.
// Errors: of the functions below; (kInput) a strategy of several stages.
Result<std::unique_ptr<Applied>> apply_strategy(PlanOptions& options, CommonOptions common);

// Whether a file was made of this model on this cluster, priced by this profile: only then does its
// bound hold.
bool is_priced_alike(const StrategyFile& file, const Inputs& inputs);

// Its steps, for strategies of stages too. A strategy of a training step makes `options` those of
// one, and the limit that it was planned for that of `common`, where this has none. Errors
// (kInput): a file that is no strategy; a pin of a stage. (kUsage): a model that is a step of the
// whole batch, for a strategy of passes.
Result<StrategyFile> strategy_to_apply(PlanOptions& options, CommonOptions& common);
// Errors: as of load_inputs() and take_checkpoints().
Result<std::unique_ptr<Inputs>> inputs_to_apply(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common);
// Both, of a strategy of one stage.
Result<std::unique_ptr<Applied>> apply_to_model(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common);
// `is_chunk`: the file is of other ops as well. Errors: of the options, of pins that cannot be kept
// (kInput, with the file), of the search.
Result<std::unique_ptr<Applied>> apply_to(std::unique_ptr<Inputs> inputs, const StrategyFile& file,
                                          bool is_chunk, const PlanOptions& options,
                                          const CommonOptions& common);

}  // namespace autopar
