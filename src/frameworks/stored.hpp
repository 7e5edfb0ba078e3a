// Over how many devices of data parallelism a plan splits what it stores (ZeRO: Rajbhandari et al.,
// "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020).
#pragma once

#include <string>
#include <vector>

#include "frameworks/roles.hpp"

namespace autopar {

struct StoredUse {
  int zero = 0;
  std::int64_t state_group = 1, weight_group = 1;  // of most bytes
  std::vector<std::string> deviations;
};
StoredUse stored_use(const SaidPlan& plan, const std::vector<AxisRoles>& roles);

}  // namespace autopar
