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
Result<std::unique_ptr<Applied>> apply_strategy(PlanOptions& options, const CommonOptions& common);

// Whether a file was made of this model on this cluster, priced by this profile: only then does its
// bound hold.
bool is_priced_alike(const StrategyFile& file, const Inputs& inputs);

// Its steps, for strategies of stages too. A strategy of a training step makes `options` those of
// one.
Result<StrategyFile> strategy_to_apply(PlanOptions& options);
Result<std::unique_ptr<Inputs>> inputs_to_apply(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common);
// Both, of a strategy of one stage.
Result<std::unique_ptr<Applied>> apply_to_model(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common);
// `is_chunk`: the file is of other ops as well.
Result<std::unique_ptr<Applied>> apply_to(std::unique_ptr<Inputs> inputs, const StrategyFile& file,
                                          bool is_chunk, const PlanOptions& options,
                                          const CommonOptions& common);

}  // namespace autopar
