// What the nodes of a level tell the values around them: TRW-S on the graph of nodes and stars.
#pragma once

#include "search/rec/level.hpp"

namespace autopar::rec {

// Per node and port a row over the roles of its star: what the rest of the graph behind the node
// adds to each role (up to a constant), as far as `passes` forth and back tell.
std::vector<std::vector<Row>> messages_to_stars(const LevelProblem& problem, int passes);

}  // namespace autopar::rec
