// Clusters and profiles that come with this program.
#pragma once

#include <string>

#include "autopar/support.hpp"

namespace autopar::cli {

// A line for each, or JSON.
Result<std::string> show_clusters(bool json);
Result<std::string> show_profiles(bool json);

}  // namespace autopar::cli
