// Why a search ends without a plan, as the user is told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/search.hpp"

namespace autopar {

// The peak that no plan could get below, over the meshes tried.
struct Tightest {
  double peak = kInfinity;
  Mesh mesh;
  int time = -1;
  bool proven = true;
  // Meshes without a plan, and of these the ones that have none that takes more either.
  std::size_t meshes = 0, without_any = 0;
};

// "1.50 GiB (1610612736 bytes)"
std::string size_text(double bytes);

// What a search that has no plan when its time is up may take beyond it, for a plan of any kind.
Seconds beyond(Seconds time_limit);

// Nothing to search where even tensors split over all devices do not fit.
Status check_memory(const SearchRequest& request);
// Where every mesh refused the pins: why most of them did.
std::optional<Error> pins_not_kept(const std::vector<MeshTrial>& trials);
// Where every mesh that could have kept the pins was left out.
std::optional<Error> too_large(const std::vector<MeshTrial>& trials);
// Where what was found only fits if the runtime takes nothing beside it.
Error fits_not_surely(const SearchRequest& request, const SearchOutcome& found);
Error no_plan(const SearchRequest& request, const Tightest& tightest, bool interrupted);
// Where such a message says what to try; its end where it does not.
std::size_t advice_of(const std::string& message);

}  // namespace autopar
