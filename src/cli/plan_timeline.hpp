// The timeline of a plan as a Chrome Trace Event file, which Perfetto and chrome://tracing open.
#pragma once

#include <string>

#include "autopar/search.hpp"

namespace autopar::cli {

// One rank, with a row per stream: compute, collectives and, with a profile that says what issuing
// costs, the host. Times are those that the plan is expected to take, in microseconds. Of many
// micro-batches the first two and the last are shown.
std::string plan_timeline_json(const SearchRequest& request, const SearchOutcome& outcome);

}  // namespace autopar::cli
