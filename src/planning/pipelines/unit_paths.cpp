#include "planning/pipelines/unit_paths.hpp"

#include <algorithm>

#include "planning/pipelines/pipeline_tuning.hpp"
#include "support/parallel.hpp"

namespace autopar {

Result<const PathPrices*> UnitPaths::of(const std::string& mesh) {
  const auto known = known_.find(mesh);
  if (known != known_.end()) return &known->second;
  const auto next = std::find_if(meshes_.begin(), meshes_.end(), [&](const std::string& other) {
    return other != mesh && known_.count(other) + ahead_.count(other) == 0;
  });
  if (threads_ > 1 && next != meshes_.end() && ahead_.count(mesh) == 0) search_two(mesh, *next);
  Seconds least = kInfinity;
  for (const auto& [other, prices] : known_) least = std::min(least, prices.least);
  const auto ahead = ahead_.find(mesh);
  AUTOPAR_TRY(found, ahead != ahead_.end() ? std::move(ahead->second) : search_(mesh, least));
  if (ahead != ahead_.end()) ahead_.erase(ahead);
  // As the search has it where it knows that plan.
  if (found.first >= least * tuning::units::kFarPlan)
    found = PathPrices{{}, found.first, found.first};
  return &known_.emplace(mesh, std::move(found)).first->second;
}

void UnitPaths::search_two(const std::string& mesh, const std::string& next) {
  std::vector<std::optional<Result<PathPrices>>> found(2);
  in_parallel(2, 2, [&](std::size_t i) { found[i] = search_(i == 0 ? mesh : next, kInfinity); });
  ahead_.emplace(mesh, std::move(*found[0]));
  ahead_.emplace(next, std::move(*found[1]));
}

}  // namespace autopar
