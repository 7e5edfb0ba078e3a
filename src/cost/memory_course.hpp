// What a device holds for a plan in the course of a step, op by op.
#pragma once

#include <vector>

#include "autopar/cost.hpp"

namespace autopar {

struct MemoryCourse {
  std::vector<Bytes> held;    // while an op runs, as StrategyCost::held
  std::vector<Bytes> before;  // of that, what was there before and is not made for this op alone
};

// Errors: of evaluate(), which this is without times.
Result<MemoryCourse> memory_course(const Graph& graph, const GraphRules& rules,
                                   const Strategy& strategy, CostModel& model,
                                   const std::string& updates);

}  // namespace autopar
