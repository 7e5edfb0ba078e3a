// What an op is the last to read.
#pragma once

#include <cstdint>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// Per op, a bit for each of its first 64 inputs that goes with it: what another op has made, nobody
// reads later or twice, and is no output of the graph.
std::vector<std::uint64_t> last_reads(const Graph& graph);

}  // namespace autopar
