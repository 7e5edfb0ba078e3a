// The ready-made clusters.
#pragma once

#include <string>

#include "autopar/support.hpp"

namespace autopar::cli {

// A line per cluster, or JSON.
Result<std::string> show_clusters(bool json);

}  // namespace autopar::cli
