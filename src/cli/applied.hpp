// A given strategy on its model and cluster, priced: what apply, price and fit begin with.
#pragma once

#include <memory>
#include <optional>

#include "autopar/search.hpp"
#include "cli/inputs.hpp"

namespace autopar::cli {

struct Applied {
  std::unique_ptr<Inputs> inputs;
  std::optional<SearchRequest> request;
  SearchOutcome outcome;
};

// `options.strategy_file` says which; a strategy of a training step makes `options` those of one.
Result<std::unique_ptr<Applied>> apply_strategy(PlanOptions& options, const CommonOptions& common);

}  // namespace autopar::cli
