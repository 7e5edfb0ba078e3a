// A strategy file as the pieces of its text: what is said of the whole, and a line for each op and
// tensor.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autopar/files.hpp"

namespace autopar {

struct StrategyLines {
  using Member = std::pair<std::string, std::string>;  // a name, and the text of its JSON value
  std::string head;                                    // members before the ops; not closed
  std::vector<Member> ops, tensors;
};
// Precondition: the strategy is verified.
StrategyLines strategy_lines(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                             const Cluster& cluster, const StrategyOrigin& origin);
std::string to_text(const StrategyLines& lines);

}  // namespace autopar
