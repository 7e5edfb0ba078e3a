// What the nodes of a level tell the values around them: TRW-S on the graph of nodes and stars.
#pragma once

#include "search/rec/level.hpp"

namespace autopar::rec {

// Per port a row over the roles of its star: what the rest of the graph behind the node adds to
// each role (up to a constant), as far as `passes` forth and back tell.
struct PortRows {
  std::vector<int> first;  // per port, in `values`
  std::vector<double> values;
  const double* row(std::size_t port) const {
    return values.data() + static_cast<std::size_t>(first[port]);
  }
};
PortRows messages_to_stars(const LevelProblem& problem, int passes);

}  // namespace autopar::rec
