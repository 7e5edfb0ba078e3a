// What a search on a problem has learnt, and another one on the same problem goes on from: small
// beside the problem and its networks, which are built again.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "solve/bound/carried.hpp"
#include "solve/limit/within_limit.hpp"

namespace autopar::solver {

struct Learnt {
  double work = 0;  // that was spent
  // Of the look without the limit; what it favours, by then or after more.
  double look_work = 0, look_cutoff = kInfinity;
  std::vector<int> start;
  double bound = 0, unlimited_bound = 0;
  std::shared_ptr<const CarriedMessages> settled;
  std::optional<LearntPrices> prices;  // where there are some, nothing is left to do without them
  std::vector<int> choices;            // of the best plan, if there is one
  std::vector<int> least_peak_choices;
};

}  // namespace autopar::solver
