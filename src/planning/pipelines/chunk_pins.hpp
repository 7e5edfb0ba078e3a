// Pins of a step, as they are asked of a part of it.
#pragma once

#include <vector>

#include "planning/inputs.hpp"

namespace autopar {

// Those of what the part has, and of what is made of it. Of values that come in or go out it keeps
// how its own ops get them; how others do is asked of the parts that these are in.
StrategyFile pins_of_part(const StrategyFile& step, const Graph& part);

// Whether the pins ask the same of two graphs that are alike but for names: of the ops by their
// places, of the values by `values` (same_values).
bool are_pinned_alike(const StrategyFile& step, const Graph& a, const Graph& b,
                      const std::vector<ValueId>& values);

}  // namespace autopar
