// Pins of a step, as they are asked of a part of it.
#pragma once

#include "planning/inputs.hpp"

namespace autopar {

// Those of what the part has. Of values that come in or go out it keeps how its own ops get them;
// how others do is asked of the parts that these are in.
StrategyFile pins_of_part(const StrategyFile& step, const Graph& part);

}  // namespace autopar
